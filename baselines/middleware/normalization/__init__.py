"""Layer 1: takes out of a text what hides or disguises text, and leaves every other letter as it is.

`characters` looks at single characters, `markup` and `invisible` at HTML, `encodings` at text inside text;
`normalize` is the layer as one function.
"""
