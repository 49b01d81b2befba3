# More memory than any node has.
job "too-much-memory" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "true"
      }
      resources {
        memory = 4000000
        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
