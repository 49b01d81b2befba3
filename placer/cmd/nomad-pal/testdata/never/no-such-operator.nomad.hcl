# An operator that Nomad does not have.
job "no-such-operator" {
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
            operator  = "contains"
            value     = "A100"
          }
        }
      }
    }
  }
}
