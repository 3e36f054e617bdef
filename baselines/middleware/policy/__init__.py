"""Layer 2: what may be called, with which arguments, and how risky a content is.

`policy` is the declarative form (one YAML per suite in `suites/`), `rules` judges one call by it, `urls`
and `paths` know the spellings that get around naive checks, `propose` writes a first policy from a toolset.
"""
