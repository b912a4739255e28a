"""OpenAI's APIs for completions and chats, on top of what pods write.

`validation` makes a job of a request (`refusals` says what is wrong with it), `run` has pods do it, `whole` and
`streaming` answer, in the `forms` of the two APIs; `handler` ties them to an HTTP exchange. The bodies are in
`schemas`.
"""
