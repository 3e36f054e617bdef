"""Programs that try to leave CaMeL's language, or to use up the machine. Each must end as a refusal.

From public knowledge of how Python sandboxes are left. `tool()` returns the text `"secret"`, `data()` a dict.
"""

from __future__ import annotations

OBJECTS = """
().__class__
().__class__.__bases__[0].__subclasses__()
"".__class__.__mro__[1].__subclasses__()
[].__class__.__base__
{}.__class__.__mro__
(1).__class__
1.0.__class__
None.__class__
True.__class__.__base__
"".__class__("x")
str.__class__
str.__base__
str.__subclasses__()
str.mro()
int.__dict__
type.__call__
type("X", (), {})
type.mro(str)
len.__self__
len.__self__.__import__("os")
print.__globals__
print.__self__
print.__module__
tool.__globals__
tool.__code__
tool.__closure__
tool.__func__
tool.__self__
tool.run
tool.name
tool.parameters
tool.__call__()
tool().__class__
data().__class__
data().__init__
data().__getattribute__("x")
data().get.__self__
data().get.__func__
[].append
[].append(1)
[].extend([1])
[].sort()
[].pop()
[].clear()
{}.update({"a": 1})
{}.pop("a")
{}.setdefault("a", 1)
{}.fromkeys([1])
{1}.add(2)
{1}.__iter__
"".__init__
"".__add__("x")
"".__format__("x")
"".__reduce__()
"".__reduce_ex__(2)
"".__dir__()
"".__doc__
"".join.__self__
"".join.__func__
"a".encode()
"a".encode().decode
"a".translate({97: "b"})
"".maketrans("a", "b")
"{}".format_map({})
BaseModel.__subclasses__()
BaseModel.model_fields
BaseModel.model_config
BaseModel.__init__
BaseModel.parse_file("/etc/passwd")
BaseModel.parse_raw("{}")
BaseModel.model_construct(a=1)
BaseModel.model_rebuild()
BaseModel().__class__
ValueError("x").args
ValueError("x").__traceback__
ValueError("x").__context__
ValueError("x").with_traceback(None)
ValueError.__subclasses__()
ValueError.mro()
Enum("X", "a b")
Enum.__members__
Enum.__class__
datetime.__class__
datetime.now()
datetime.today()
datetime.utcnow()
datetime.__reduce__
datetime(2024, 1, 1).__class__
datetime(2024, 1, 1).__reduce__()
datetime(2024, 1, 1).tzinfo.__class__
timedelta(1).__class__
timezone.utc
date.today()
date.max.__class__
FieldInfo(default_factory=print)
FieldInfo.__init__
EmailStr.__get_pydantic_core_schema__
NaiveDatetime.__class__
""".strip().splitlines()
"""Ways from an object to Python's machinery."""

FORMATS = """
"{0.__class__}".format(1)
"{0.__class__.__mro__}".format("")
"{0[0]}".format([1])
"{0.real}".format(1)
"{x.__globals__}".format(x=print)
"{!r:{}}".format("a", "10")
"{:>1000000000}".format(1)
"{:.1000000000f}".format(1.0)
"{0:{1}}".format(1, "999999999")
f"{1:1000000000}"
f"{1:>1000000000}"
f"{1.0:.1000000000f}"
f"{1:{10**9}}"
f"{'a':{'x' * 500}}"
f"{().__class__}"
f"{print.__self__}"
f"{[1]:>10}"
f"{data():x}"
f"{datetime(2024, 1, 1):%1000000000Y}"
f"{datetime(2024, 1, 1):{'%Y' * 500}}"
datetime(2024, 1, 1).strftime("%1000000000d")
datetime(2024, 1, 1).strftime("%-1000000000d")
datetime(2024, 1, 1).strftime("%_999999999Y")
datetime(2024, 1, 1).strftime("%Y" * 1000)
datetime.strptime("1" * 100000, "%Y")
datetime.strptime("1", "%Y" * 1000)
datetime.fromisoformat("1" * 100000)
"%s" % "a"
"%1000000000d" % 1
"%(a)s" % {"a": 1}
"a" % ()
""".strip().splitlines()
"""Format strings as a way out, or as a bomb."""

BUILTINS = """
eval("1")
exec("1")
compile("1", "", "eval")
__import__("os")
__import__("os").system("id")
open("/etc/passwd")
input()
globals()
locals()
vars()
getattr("", "upper")
setattr("", "x", 1)
delattr("", "x")
hasattr("", "x")
object()
super()
classmethod(print)
staticmethod(print)
property(print)
isinstance(1, int)
issubclass(int, int)
callable(print)
id(1)
iter([1])
next([1])
map(str, [1])
filter(None, [1])
memoryview("")
bytearray(10)
bytes(10)
complex(1)
frozenset([1])
slice(1)
breakpoint()
help()
exit()
quit()
copyright()
license()
dict(a=1)
pow(9, 9)
round(1.5)
chr(1)
ord("a")
hex(1)
format(1, ">1000000000")
__builtins__
__builtins__["eval"]
__name__
__file__
__loader__
__spec__
__debug__
__build_class__
Exception("x")
BaseException("x")
SystemExit()
KeyboardInterrupt()
os.system("id")
sys.exit()
subprocess.run("id")
print(file=1)
sorted([1], key=open)
max([1], key=print)
""".strip().splitlines()
"""Names that Python has and programs have not."""

STATEMENTS = [
    "import os",
    "import os as print",
    "from os import system",
    "from os import *",
    "from __future__ import annotations\nfrom os import path",
    "from builtins import eval",
    "from pydantic import BaseModel as eval",
    "from . import x",
    "while True:\n    pass",
    "for x in [1]:\n    break",
    "for x in [1]:\n    continue",
    "for x in [1]:\n    pass\nelse:\n    pass",
    "def f():\n    return 1",
    "async def f():\n    pass",
    "f = lambda: 1",
    "(lambda: 1)()",
    "return 1",
    "yield 1",
    "(yield)",
    "(yield from [1])",
    "await tool()",
    "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass",
    "try:\n    pass\nfinally:\n    pass",
    "try:\n    1 / 0\nexcept* ValueError:\n    pass",
    "with open('x') as f:\n    pass",
    "assert True",
    "del x",
    "global x",
    "nonlocal x",
    "match 1:\n    case 1:\n        pass",
    "@print\nclass A(BaseModel):\n    a: int",
    "(x for x in [1])",
    "sum(x for x in [1])",
    "[1, 2, 3][0:2]",
    "'abc'[::-1]",
    "1 < 2 < 3",
    "b'bytes'",
    "1j",
    "...",
    "a, *b = [1, 2, 3]",
    "*[1]",
    "1 @ 2",
    "x = 1\nx @= 2",
    "[x async for x in [1]]",
    "print = eval",
    "tool = print",
    "[tool for tool in [1]]",
    "for print in [1]:\n    pass",
    "(len := 1)",
    "len += 1",
    "print.x = 1",
    "tool.name = 'x'",
    "str.upper = print",
    "BaseModel.x = 1",
    "data().x = 1",
    "[1][0] = 2",
    "'abc'[0] = 'x'",
    "(1, 2)[0] = 3",
    "x = 'abc'\nx[0] = 'y'",
    "x = (1,)\nx[0] = 2",
    "x = datetime(2024, 1, 1)\nx.year = 3",
    "x = [1]\nx.__class__ = 1",
    "raise",
    "raise SystemExit",
    "raise 1",
    "raise print",
    "raise BaseModel",
    "raise ValueError('x') from ValueError('y')",
    "raise ValueError('x', 'y')",
    "x: int = y",
]
"""Statements and expressions that the language does not have, and assignments that may not be."""

CLASSES = [
    "class A:\n    pass",
    "class A(str):\n    pass",
    "class A(object):\n    pass",
    "class A(Enum):\n    a = 1",
    "class A(ValueError):\n    pass",
    "class A(datetime):\n    pass",
    "class A(BaseModel, str):\n    pass",
    "class A(BaseModel, metaclass=type):\n    a: int",
    "class A(metaclass=print):\n    pass",
    "class A(print('x')):\n    pass",
    "class A(BaseModel):\n    a: int = 1",
    "class A(BaseModel):\n    a = 1",
    "class A(BaseModel):\n    def f(self):\n        return 1",
    "class A(BaseModel):\n    print('x')",
    "class A(BaseModel):\n    a: print('x')",
    "class A(BaseModel):\n    a: __import__('os').system('id')",
    "class A(BaseModel):\n    a: eval('1')",
    "class A(BaseModel):\n    a: tool()",
    "class A(BaseModel):\n    a: 'int'",
    "class A(BaseModel):\n    a: 1",
    "class A(BaseModel):\n    a: str.__class__",
    "class A(BaseModel):\n    a: [int]",
    "class A(BaseModel):\n    a: (lambda: int)()",
    "class A(BaseModel):\n    a: list[print('x')]",
    "class A(BaseModel):\n    a: dict[str]",
    "class A(BaseModel):\n    a: print",
    "class A(BaseModel):\n    a: BaseModel",
    "class A(BaseModel):\n    a: object",
    "class A(BaseModel):\n    a: type",
    "class A(BaseModel):\n    a: Literal[tool()]",
    "class A(BaseModel):\n    a: Literal[1]",
    "class A(BaseModel):\n    a: Annotated[str, print]",
    "class A(BaseModel):\n    a: (x := int)",
    "class A(BaseModel):\n    __init__: str",
    "class A(BaseModel):\n    __class__: str",
    "class A(BaseModel):\n    _a: str",
    "class A(BaseModel):\n    model_config: dict",
    "class A(BaseModel):\n    model_fields: dict",
    "class A(BaseModel):\n    copy: str",
    "class A(BaseModel):\n    json: str",
    "class print(BaseModel):\n    a: int",
    "class A(BaseModel):\n    a: int\nclass A(BaseModel):\n    a: int",
    "class A(BaseModel):\n    a: int\nA(1)",
    "class A(BaseModel):\n    a: int\nA(a='x')",
    "class A(BaseModel):\n    a: int\nA(a=1).__class__",
    "class A(BaseModel):\n    a: int\nA(a=1).model_fields",
    "class A(BaseModel):\n    a: int\nA.model_validate({'a': 1})",
    "class A(BaseModel):\n    a: int\nA.a = print",
    "class A(BaseModel):\n    a: int\nA.__init__(1)",
    "class A(BaseModel):\n    a: int\nx = A(a=1)\nx.b = 2",
    "@dataclass\nclass A:\n    a: int = print('x')",
]
"""Classes as a way to run code: bases, decorators, annotations, fields with a meaning."""

BOMBS = [
    "9 ** 9 ** 9",
    "2 ** 100000",
    "10 ** 10 ** 10",
    "x = 2 ** 4000\nx * x",
    "1 << 1000000000",
    "1 << (1 << 40)",
    "x = 3\nfor i in range(100):\n    x = x * x",
    "x = 3\nfor i in range(100):\n    x **= 2",
    "int('9' * 100000)",
    "str(10 ** 1233) * 10 ** 6",
    "9" * 5000,
    "'a' * 10 ** 9",
    "10 ** 9 * 'a'",
    "[1] * 10 ** 9",
    "10 ** 9 * [1]",
    "(1, 2) * 10 ** 9",
    "'a' * 10 ** 6 + 'b'",
    "x = 'a'\nfor i in range(100):\n    x = x + x",
    "x = 'a'\nfor i in range(100):\n    x += x",
    "x = [1]\nfor i in range(100):\n    x = x + x",
    "x = 'a'\nfor i in range(100):\n    x = f'{x}{x}'",
    "x = [1]\nfor i in range(100):\n    x = [x, x]",
    "x = {}\nfor i in range(100):\n    x = {'a': x, 'b': x}",
    "x = (1,)\nfor i in range(100):\n    x = (x, x, x)",
    "x = [1]\nfor i in range(20):\n    x = [x] * 10\nprint(x)",
    "x = ['a' * 900000]\nx = x + x\nprint(x)",
    "x = []\nfor i in range(1000):\n    x = x + ['a' * 90000]",
    "x = {}\nfor i in range(10000):\n    x[i] = x",
    "x = []\nfor i in range(30000):\n    x = x + [i]",
    "x = [0]\nfor i in range(10000):\n    x[0] = x",
    "range(10 ** 9)",
    "range(10 ** 18)",
    "range(10 ** 400)",
    "list(range(10 ** 9))",
    "[i for i in range(10 ** 9)]",
    "[[i for i in range(1000)] for j in range(1000)]",
    "[1 for a in range(1000) for b in range(1000)]",
    "{i: i for i in range(10 ** 8)}",
    "for a in range(1000):\n    for b in range(1000):\n        pass",
    "for a in range(100):\n    for b in range(100):\n        for c in range(100):\n            x = a + b + c",
    "sum(range(10 ** 10))",
    "max(range(10 ** 10))",
    "sorted(range(10 ** 8))",
    "set(range(10 ** 8))",
    "enumerate('a' * 900000)",
    "list('a' * 900000)",
    "zip('a' * 900000, 'b' * 900000)",
    "reversed('a' * 900000)",
    "tuple('a' * 900000)",
    "('a,' * 400000).split(',')",
    "('a\\n' * 400000).splitlines()",
    "'a'.ljust(10 ** 9)",
    "'a'.rjust(10 ** 9)",
    "'a'.center(10 ** 9)",
    "'1'.zfill(10 ** 9)",
    "'\\t'.expandtabs(10 ** 9)",
    "('\\t' * 1000).expandtabs(tabsize=10 ** 6)",
    "('a' * 1000).replace('a', 'b' * 10000)",
    "('a' * 1000).replace('', 'b' * 10000)",
    "('a' * 10000).join(['b'] * 1000)",
    "'{}{}{}'.format('a' * 500000, 'a' * 500000, 'a' * 500000)",
    "repr('\\n' * 900000)",
    "x = '\\n' * 900000\nprint([x])\nprint([x])\nprint([x])\nprint([x])\nprint([x])\nprint([x])\nprint([x])",
    "for i in range(1000):\n    print('a' * 100000)",
    "timedelta(days=10 ** 18)",
    "timedelta(10 ** 8) * 10 ** 8",
    "datetime(10 ** 9, 1, 1)",
    "datetime(2024, 1, 1) + timedelta(days=10 ** 8)",
    "divmod(1, 0)",
    "1 // 0",
    "1.0 / 0",
    "2.0 ** 100000",
    "(-8) ** 0.5",
    "int('a', 99)",
    "int(float('inf'))",
    "(" * 100 + "1" + ")" * 100 + " +" * 200 + " 1",
    "-" * 5000 + "1",
    "not " * 5000 + "True",
    "[" * 150 + "]" * 150,
    "x = " + "{'a': " * 80 + "1" + "}" * 80,
    "a" + ".b" * 5000,
    "f" + "(" * 150 + ")" * 150,
    "1" + " + 1" * 9000,
    "x = [" + "1, " * 30000 + "]",
    "x = '" + "a" * 50000 + "'",
    "if True:\n" + "".join(" " * n + "if True:\n" for n in range(1, 90)) + " " * 90 + "pass",
    "".join(f"class A{n}(BaseModel):\n    a: int\n" for n in range(60)),
    "class A(BaseModel):\n" + "".join(f"    a{n}: int\n" for n in range(200)),
    "class A(BaseModel):\n    a: " + "list[" * 80 + "int" + "]" * 80,
    "print(1",
    "x = = 1",
    "\x00",
    "x = 1\n  y = 2",
    "'unterminated",
]
"""Programs that want too much, or are no programs."""

PROGRAMS = [*OBJECTS, *FORMATS, *BUILTINS, *STATEMENTS, *CLASSES, *BOMBS]
