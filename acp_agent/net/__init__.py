"""HTTP: to model APIs, as the user set the network up, and to web pages a model asks for, past every guard.

httpx and its errors stay in this folder.
"""
