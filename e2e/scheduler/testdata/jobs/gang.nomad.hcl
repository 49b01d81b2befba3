# Two allocations of two GPUs, to be placed by nomad-pal.
job "gang" {
  type = "batch"
  group "g" {
    count = 2
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        device "nvidia/gpu" {
          count = 2
        }
      }
    }
  }
}
