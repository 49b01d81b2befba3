# A batch job on one part of a GPU. Another job can run on another part, for example
# shared-notebook.nomad.hcl. Under time slicing nothing limits a task's GPU memory, so all tasks
# together must not use more than the GPU has.
job "shared-batch" {
  type = "batch"

  group "train" {
    task "train" {
      driver = "docker"

      config {
        image   = "nvcr.io/nvidia/pytorch:25.10-py3"
        command = "python"
        args    = ["train.py"]
      }

      resources {
        cpu    = 2000
        memory = 8192

        device "nvidia/gpu.shared" {}
      }
    }
  }
}
