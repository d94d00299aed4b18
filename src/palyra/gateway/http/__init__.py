"""HTTP: the server, the application, requests, responses and event streams. Not: routes, nor who may ask."""
