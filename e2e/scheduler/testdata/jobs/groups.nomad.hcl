# A gang of two groups: one allocation with two GPUs, two with one each.
job "groups" {
  type = "batch"
  group "trainer" {
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
  group "reader" {
    count = 2
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
