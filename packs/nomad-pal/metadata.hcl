app {
  url = "https://github.com/nomad-pal/nomad-pal"
}

pack {
  name        = "nomad-pal"
  description = "nomad-pal's agent: variability-aware GPU placement. Runs two agents: one places, the other stands by."
  version     = "2.0.0-dev"
}
