app {
  url = "https://github.com/nomad-pal/nomad-pal"
}

pack {
  name        = "nomad-pal"
  description = "The agent of nomad-pal: variability-aware GPU placement. Two agents, of which one places."
  version     = "2.0.0-dev"
}
