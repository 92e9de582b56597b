"""stub"""
from decgraph.dsl.diagnostics import Diagnostic
class Stuck:
    def __init__(s,source,tokens,position,accepted,literals): s.__dict__.update(locals())
def explain(s):
    t=s.tokens[s.position]
    return Diagnostic("E008", f"unexpected {t}; {sorted(s.accepted)}", t.span)
