"""The shapes of the HTTP interface: what is sent and what is answered. Touches nothing.

The server reads requests into these types and fills these answers, the Python client sends and returns them, and
`GET /openapi.json` is made from them.
"""
