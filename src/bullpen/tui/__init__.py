"""The live board in a terminal, over the api client. Only this room knows Textual."""
