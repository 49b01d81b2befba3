# A notebook on a part of a GPU. Another job can run on another part, for example
# shared-batch.nomad.hcl.
job "shared-notebook" {
  type = "service"

  meta {
    pal_class = "D" # mostly idle: may share a GPU with jobs of every class
  }

  group "notebook" {
    network {
      port "http" {}
    }

    task "jupyter" {
      driver = "docker"

      config {
        image    = "nvcr.io/nvidia/pytorch:25.10-py3"
        command  = "jupyter"
        args     = ["lab", "--ip=0.0.0.0", "--port=${NOMAD_PORT_http}", "--no-browser", "--allow-root"]
        ports    = ["http"]
        shm_size = 2147483648 # 2 GiB
      }

      resources {
        cpu    = 2000
        memory = 8192

        device "nvidia/gpu.shared" {}
      }
    }
  }
}
