# Affinities and spreads that say nothing do not keep a job from starting.
job "affinity" {
  type = "batch"
  group "g" {
    affinity {
      attribute = "${device.attr.nothing}"
      value     = "x"
    }
    spread {
      attribute = "${meta.nothing}"
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "true"
      }
      resources {
        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
