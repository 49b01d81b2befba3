# Memory in a unit that Nomad does not have.
job "wrong-unit" {
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
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "40 gb"
          }
        }
      }
    }
  }
}
