# A group without GPUs that no node can take.
job "group-beside" {
  type = "batch"
  group "g" {
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
  group "web" {
    task "proxy" {
      driver = "java"
      config {
        jar_path = "proxy.jar"
      }
    }
  }
}
