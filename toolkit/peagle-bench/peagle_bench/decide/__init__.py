"""Host or call: what a month costs on an own endpoint and by the token.

`costs` has the arithmetic, `decision` the verdict and its sentence, `traffic` reads tokens and rates,
`options` what hosting offers, `section` is the report's section.
"""
