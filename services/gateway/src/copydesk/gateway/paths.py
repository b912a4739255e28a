"""Where the endpoints of the hot path are."""

CORRECT = "/v1/correct"
COMPLETIONS = "/v1/completions"
CHAT_COMPLETIONS = "/v1/chat/completions"
