# Two instances of an inference service on parts of GPUs. With nomad job run, Nomad chooses the
# parts. nomad-pal run adds the gate, so that nomad-pal chooses the parts. The operator divides
# GPUs in the device plugin's configuration: docs/tasks/share-gpus.md.
job "shared-inference" {
  type = "service"

  group "serve" {
    count = 2

    network {
      port "http" {}
    }

    service {
      name     = "shared-inference"
      port     = "http"
      provider = "nomad"

      check {
        type     = "http"
        path     = "/health"
        interval = "10s"
        timeout  = "2s"
      }
    }

    task "serve" {
      driver = "docker"

      config {
        image = "vllm/vllm-openai:v0.11.0"
        args = [
          "--model", "Qwen/Qwen3-0.6B", "--port", "${NOMAD_PORT_http}",
          "--gpu-memory-utilization", "0.4", # of the whole GPU's memory; under time slicing nothing else limits the memory
        ]
        ports    = ["http"]
        shm_size = 2147483648 # 2 GiB
      }

      resources {
        cpu    = 4000
        memory = 16384

        device "nvidia/gpu.shared" { # any model; nvidia/gpu.shared/Tesla T4-SHARED is one model
          constraint {               # on the memory of one part
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "5 GiB"
          }
        }
      }
    }
  }
}
