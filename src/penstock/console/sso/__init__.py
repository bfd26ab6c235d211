"""Single sign-on by OpenID Connect: the authorisation code flow with PKCE, and tokens for brokers.

`settings` reads the file of `penstock console --sso`, `flow` decides without I/O, `provider` talks to the
provider, `tokens` keeps the tokens of one login and renews them. ADR 57 has the reasons.
"""
