// llama.cpp's own converter of schemas and its own matcher, without the rest of the library.
#include "common/json-schema-to-grammar.h"
#include "src/llama-grammar.h"
#include "src/llama-impl.h"
#include "src/llama-vocab.h"
#include "src/unicode.h"
#include <cstdlib>
#include <iostream>

// What both need of files that are not compiled.
std::string string_join(const std::vector<std::string> & parts, const std::string & between) {
    std::string whole;
    for (size_t n = 0; n < parts.size(); n++) whole += (n ? between : "") + parts[n];
    return whole;
}
std::vector<std::string> string_split(const std::string & whole, const std::string & between) {
    std::vector<std::string> parts;
    size_t start = 0;
    for (size_t end; (end = whole.find(between, start)) != std::string::npos; start = end + between.size())
        parts.push_back(whole.substr(start, end - start));
    parts.push_back(whole.substr(start));
    return parts;
}
std::string string_repeat(const std::string & part, size_t times) {
    std::string whole;
    while (times-- > 0) whole += part;
    return whole;
}
void llama_log_internal(ggml_log_level, const char *, ...) {}
extern "C" void ggml_abort(const char *, int, const char *, ...) { std::abort(); }
std::vector<llama_token> llama_vocab::tokenize(const std::string &, bool, bool) const { std::abort(); }
int32_t llama_vocab::tokenize(const char *, int32_t, llama_token *, int32_t, bool, bool) const { std::abort(); }

int main() {
    std::string schema, text;
    while (std::getline(std::cin, schema) && std::getline(std::cin, text)) {
        try {
            auto rules = json_schema_to_grammar(common_json::parse(schema), true);
            auto * grammar = llama_grammar_init_impl(nullptr, rules.c_str(), "root", false, nullptr, 0, nullptr, 0);
            auto & stacks = llama_grammar_get_stacks(grammar);
            for (auto point : unicode_cpts_from_utf8(text)) {
                if (!stacks.empty()) llama_grammar_accept(grammar, point);
            }
            bool ended = false;
            for (auto & stack : stacks) ended |= stack.empty();
            std::cout << (ended ? "true" : "false") << std::endl;
        } catch (const std::exception & error) {
            std::cout << "\"refuses the schema\"" << std::endl;
        }
    }
}
