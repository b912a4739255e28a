"""The vLLM engine: the same requests, computed by vLLM's AsyncLLM in its own environment.

`engine` is the whole of our part (who waits, who runs, deadlines, cancellations) over the seam `client`, and knows
nothing of vLLM; `parameters` and `options` translate, as pure functions; `async_llm` alone imports vLLM. `guard`
ends what vLLM has started when its process is gone; `environment` says how that process is started. Nothing here
imports torch or code that was compiled for Copydesk: it runs under another interpreter than the rest of the pod.
"""
