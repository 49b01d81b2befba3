# A service. It is tied to a highest variability class instead of exact GPUs, so
# Nomad can replace a lost instance by itself.
job "inference" {
  type = "service"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "open"
  }

  meta {
    pal_class = "C" # memory-bound: hardly any difference between GPUs
    pal_pin   = "class"
  }

  group "serve" {
    count = 2

    network {
      port "http" {
        to = 8000
      }
    }

    service {
      name     = "inference"
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
        args  = ["--model", "Qwen/Qwen3-8B", "--port", "8000"]
        ports = ["http"]
      }

      resources {
        cpu    = 8000
        memory = 65536

        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
