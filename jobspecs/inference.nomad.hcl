# A service. It prefers the nodes that nomad-pal chose, and Nomad replaces a lost instance on any
# node. A new version starts as one canary, while the old instances run. When the canary is healthy,
# the new version replaces them.
#
#   nomad-pal run inference.nomad.hcl
#   nomad job deployments inference          # the progress of an update
#   nomad job revert inference 0             # back to the first version
job "inference" {
  type = "service"

  constraint {
    attribute = "${meta.pal_gate}"
    value     = "waiting in nomad-pal's queue (type: nomad-pal explain JOB)"
  }

  meta {
    pal_class = "C" # memory-bound, so differences between GPUs matter little
  }

  update {
    canary            = 1
    max_parallel      = 1
    min_healthy_time  = "10s"
    healthy_deadline  = "15m" # loading the model takes minutes
    progress_deadline = "20m"
    auto_promote      = true
    auto_revert       = true
  }

  group "serve" {
    count          = 2
    shutdown_delay = "5s" # the instance leaves service discovery 5 s before it stops

    network {
      port "http" {}
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
      driver       = "docker"
      kill_timeout = "30s" # time for current requests to finish

      config {
        image    = "vllm/vllm-openai:v0.11.0"
        args     = ["--model", "Qwen/Qwen3-8B", "--port", "${NOMAD_PORT_http}"]
        ports    = ["http"]
        shm_size = 8589934592 # 8 GiB
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
