"""Pods that speak only OpenAI-style HTTP, such as a plain vLLM server.

`channel` has the face of an RPC channel, so that nothing else in the gateway knows the difference. `questions`
puts tasks as OpenAI's API does, `asking` has them asked over the connections of a `pool` (`connection` is one of
them), and `readers` make answers of what comes back.
"""
