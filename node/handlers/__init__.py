"""One module per family of requests. A handler reads a header, asks a table or the store, answers.

`node.remoting.dispatcher.Handler` says what a handler is; `node.run` puts them together.
"""
