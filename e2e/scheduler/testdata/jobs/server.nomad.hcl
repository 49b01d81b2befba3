# A service whose members need each other, tied to nodes and a class.
job "server" {
  type = "service"
  group "g" {
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
