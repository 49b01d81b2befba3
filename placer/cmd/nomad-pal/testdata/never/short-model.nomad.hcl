# A model by a part of its name.
job "short-model" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "true"
      }
      resources {
        device "nvidia/gpu" {
          constraint {
            attribute = "${device.model}"
            value     = "a100"
          }
        }
      }
    }
  }
}
