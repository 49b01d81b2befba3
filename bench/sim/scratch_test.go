package sim
import ("testing";"fmt";"math";"time";"github.com/nomad-pal/nomad-pal/pal";"github.com/nomad-pal/nomad-pal/pal/queue";"github.com/nomad-pal/nomad-pal/bench/trace";"path/filepath")

var _ = fmt.Sprint
type base struct{ avg, mk, mx float64 }
func TestScratch(t *testing.T){
 dir:=palData(t); rows:=longhorn(t,dir)
 var trs [4]trace.Trace
 var art [4]base
 for w:=range trs { trs[w],_ = trace.ReadFile(filepath.Join(dir,fmt.Sprintf("sia_workload_%d.csv",w+1)))
   r:=runArtifact(t,rows,dir,run{fmt.Sprint(w+1),"PAL","Fifo"},nil); f:=FiguresOf(r.Jobs); art[w]=base{f.AvgJCT,f.Makespan,f.MaxJCT} 
   fmt.Println(w+1, f.AvgJCT, f.Makespan, f.MaxJCT) }
 try:=func(name string,o queue.Options, restart float64, pre bool){
  g,gm,gx:=0.0,0.0,0.0; s:=""
  for w:=range trs {
   p,_,_:=DrawRows(16,4,rows,42); c,_:=p.Cluster(pal.TwoTier(1.7))
   t0:=time.Now()
   out,err:=Config{Jobs:trs[w].Jobs,Cluster:c,Queue:o,RestartS:restart,Preemptible:pre}.Run()
   if err!=nil{ fmt.Println(name,err); return}
   f:=FiguresOf(out.Jobs)
   g+=math.Log(f.AvgJCT/art[w].avg)/4; gm+=math.Log(f.Makespan/art[w].mk)/4; gx+=math.Log(f.MaxJCT/art[w].mx)/4
   s+=fmt.Sprintf(" | %.3f mk %.3f mx %.3f n%d %dms",f.AvgJCT/art[w].avg,f.Makespan/art[w].mk,f.MaxJCT/art[w].mx,out.Preemptions,time.Since(t0).Milliseconds())
  }
  fmt.Printf("%-28s avg %.3f mk %.3f max %.3f %s\n",name,math.Exp(g),math.Exp(gm),math.Exp(gx),s)
 }
 P:=pal.Policy{Name:pal.PAL}
 for _,o:=range []queue.Order{queue.FIFO,queue.LAS,queue.SRTF,queue.Adaptive}{
  try(string(o)+" strict",queue.Options{Order:o,Placement:P},60,false)
  try(string(o)+" bf",queue.Options{Order:o,Placement:P,Backfill:true},60,false)
  try(string(o)+" bf pass",queue.Options{Order:o,Placement:P,Backfill:true,Passing:true},60,false)
  try(string(o)+" bf mig",queue.Options{Order:o,Placement:P,Backfill:true,Passing:true,Migrate:true},60,false)
  try(string(o)+" bf pre",queue.Options{Order:o,Placement:P,Backfill:true,Passing:true,Preempt:true},60,true)
  try(string(o)+" bf pre mig",queue.Options{Order:o,Placement:P,Backfill:true,Passing:true,Preempt:true,Migrate:true},60,true)
  try(string(o)+" bf2 pre mig",queue.Options{Order:o,Placement:P,Backfill:true,Preempt:true,Migrate:true},60,true)
 }
}
