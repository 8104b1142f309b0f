"""The schemas that others read, generated from the messages: `python -m takeback.schemas --check` or `--write`.

`events/` a JSON Schema for each event type, `http/` one for each body, `asyncapi.yaml` the bus, `openapi.yaml` the doors.
"""
