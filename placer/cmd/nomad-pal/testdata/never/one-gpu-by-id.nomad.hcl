# One GPU by its id.
job "one-gpu-by-id" {
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
            attribute = "${device.attr.uuid}"
            value     = "GPU-0-1"
          }
        }
      }
    }
  }
}
