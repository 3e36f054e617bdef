"""Layer 3: whether what an agent passes on carries instructions that it read, towards other agents or steps.

`copies` finds copies word by word and paraphrases, `chain` the same content at several stages;
`spread` weighs them together with what the text itself says.
"""
