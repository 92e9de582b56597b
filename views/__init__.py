"""Pages and drawings of results: a run as a page, a plot or a trace for a browser's profiler; a counterexample as a page.

They read recordings, statistics and reports, and nothing but the command line and the facade imports them.
"""
