"""The HTTP server: OpenAI's API in front of any algorithm, with the runs of all clients batched together.

`app.py` has the routes, `wire.py` what requests look like, `generation.py` what they become, `worker.py` the one thread that
owns the engines. FastAPI, uvicorn and prometheus-client come with the extra `serve`.
"""
