"""One module per API or family of APIs: each answers requests with what its constructor was given.

The composition root (`app.routes`) builds the handlers. They may use every package but `app` and `request`.
"""
