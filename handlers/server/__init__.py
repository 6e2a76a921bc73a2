"""The path from a frame to a response: the table of APIs, and the dispatch to their handlers.

table             every API: versions, message classes, handler
dispatch          header, table row, handler, writer
request_parts     long requests, in parts
access_document   docs/access.md, made from what each API declares
"""
