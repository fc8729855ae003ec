"""The ways into agents, one file each, all behind the port `bullpen.mail.doors`."""
