# A batch job on a part of a GPU, beside a notebook on another: shared-notebook.nomad.hcl. Under time
# slicing nothing limits a task's memory: both must keep to what fits.
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
