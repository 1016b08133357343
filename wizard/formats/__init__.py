"""Plan → job scripts and other trainers' configurations; their configurations → Preset. Pure."""
