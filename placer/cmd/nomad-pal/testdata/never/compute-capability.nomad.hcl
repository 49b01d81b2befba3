# An attribute under the name that others have for it.
job "compute-capability" {
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
            attribute = "${device.attr.compute_capability}"
            operator  = ">="
            value     = "8.0"
          }
        }
      }
    }
  }
}
