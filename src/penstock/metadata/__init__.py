"""What the cluster knows of itself: the image that metadata records add up to, and the decisions on it.

Pure: a decision is a function of the image and a request that gives (records, result). Whoever runs it
appends the records to the metadata log and then applies them to the image; nothing else changes the image.
"""
