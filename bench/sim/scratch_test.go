package sim
import ("os";"testing";"fmt";"math";"sync";"github.com/nomad-pal/nomad-pal/pal";"github.com/nomad-pal/nomad-pal/pal/queue";"github.com/nomad-pal/nomad-pal/bench/pyrandom";"github.com/nomad-pal/nomad-pal/bench/trace";"path/filepath")

type base struct{ avg, mk, mx float64 }
type wl struct{ tr trace.Trace; seed uint32; cap float64; art base }
type variant struct { name string; o queue.Options; pre bool }
func gather(t *testing.T, rows Rows, dir string) (eval, tune []wl) {
 art:=func(w *wl){ p,sc,_:=DrawRows(16,4,rows,w.seed); if w.cap>0 {p=p.Cap(pal.PMScore(w.cap))}; c,_:=p.Cluster(pal.TwoTier(1.7))
   r,err:=Faithful{Jobs:w.tr.Jobs,Cluster:c,Policy:"pal",Order:"fifo",RoundS:360,LoadPerH:2,Fillers:true,Scores:sc,Arrivals:pyrandom.New(1)}.Run(); if err!=nil{panic(err)}
   f:=FiguresOf(r.Jobs); w.art=base{f.AvgJCT,f.Makespan,f.MaxJCT} }
 for w:=1;w<=4;w++ { tr,_ := trace.ReadFile(filepath.Join(dir,fmt.Sprintf("sia_workload_%d.csv",w))); eval=append(eval,wl{tr:tr,seed:42}) }
 for s:=uint64(101);s<=124;s++ { x:=wl{tr:trace.SiaPhilly(s,trace.Shape{Jobs:160}),seed:uint32(s-101)}; if s%2==0 {x.cap=1.15}; tune=append(tune,x) }
 for i:=range eval {art(&eval[i])}
 for i:=range tune {art(&tune[i])}
 return
}
func evalv(rows Rows, ws []wl, v variant, detail bool) string {
  g,gm,gx,worst,wmk:=0.0,0.0,0.0,0.0,0.0; s:=""
  for _,w:=range ws {
   p,_,_:=DrawRows(16,4,rows,w.seed); if w.cap>0 {p=p.Cap(pal.PMScore(w.cap))}; c,_:=p.Cluster(pal.TwoTier(1.7))
   out,err:=Config{Jobs:w.tr.Jobs,Cluster:c,Queue:v.o,RestartS:60,Preemptible:v.pre}.Run()
   if err!=nil{ return err.Error()}
   f:=FiguresOf(out.Jobs); n:=float64(len(ws))
   a:=f.AvgJCT/w.art.avg
   g+=math.Log(a)/n; gm+=math.Log(f.Makespan/w.art.mk)/n; gx+=math.Log(f.MaxJCT/w.art.mx)/n; worst=max(worst,a); wmk=max(wmk,f.Makespan/w.art.mk)
   if detail { s+=fmt.Sprintf(" |%.3f mk %.2f n%d",a,f.Makespan/w.art.mk,out.Preemptions) }
  }
  return fmt.Sprintf("avg %.3f worst %.3f mk %.3f (%.2f) max %.3f%s",math.Exp(g),worst,math.Exp(gm),wmk,math.Exp(gx),s)
}
func variants() []variant {
 P:=pal.Policy{Name:pal.PAL}
 var vs []variant
 vs=append(vs,variant{"default np",queue.Default(false),false})
 vs=append(vs,variant{"default pre",queue.Default(true),true})
 for _,pl:=range []pal.PolicyName{pal.PAL,pal.PMFirst,pal.Packed} { for _,near:=range []bool{false,true} { for _,av:=range []float64{0,1.5} { for _,mig:=range []bool{false,true} {
  o:=queue.Options{Order:queue.LAS,Placement:P,Backfill:true,Passing:true,Preempt:true,Migrate:mig,Near:near,Avoid:av}
  o.Placement.Name=pl
  vs=append(vs,variant{fmt.Sprintf("LAS %s near%v av%.1f mig%v",pl,near,av,mig),o,true})
 }}}}
 return vs
}
type score struct { avg, worst, mk, mx float64 }
func evals(rows Rows, ws []wl, v variant) (sc score) {
  for _,w:=range ws {
   p,_,_:=DrawRows(16,4,rows,w.seed); if w.cap>0 {p=p.Cap(pal.PMScore(w.cap))}; c,_:=p.Cluster(pal.TwoTier(1.7))
   out,err:=Config{Jobs:w.tr.Jobs,Cluster:c,Queue:v.o,RestartS:60,Preemptible:v.pre}.Run()
   if err!=nil{ return score{9,9,9,9}}
   f:=FiguresOf(out.Jobs); n:=float64(len(ws))
   a:=f.AvgJCT/w.art.avg
   sc.avg+=math.Log(a)/n; sc.mk+=math.Log(f.Makespan/w.art.mk)/n; sc.mx+=math.Log(f.MaxJCT/w.art.mx)/n; sc.worst=max(sc.worst,a)
  }
  sc.avg,sc.mk,sc.mx=math.Exp(sc.avg),math.Exp(sc.mk),math.Exp(sc.mx)
  return
}
func TestScratch(t *testing.T){
 dir:=os.Getenv("PAL_DATA"); rows:=longhorn(t,dir)
 eval,tune:=gather(t,rows,dir)
 vs:=variants()
 type res struct{ v variant; t,e score }
 outs:=make([]res,len(vs))
 var wg sync.WaitGroup; sem:=make(chan int,2)
 for i,v:=range vs { wg.Add(1); go func(){ defer wg.Done(); sem<-1; outs[i]=res{v,evals(rows,tune,v),evals(rows,eval,v)}; <-sem }() }
 wg.Wait()
 /*show:=func(title string, f func(r res) float64){ sort.SliceStable(outs,func(a,b int)bool{return f(outs[a])<f(outs[b])}); fmt.Println("--",title); for _,r:=range outs[:18] { fmt.Printf("%-44s tune %.3f %.3f mk %.3f mx %.3f | eval %.4f %.3f mk %.3f mx %.3f\n",r.v.name,r.t.avg,r.t.worst,r.t.mk,r.t.mx,r.e.avg,r.e.worst,r.e.mk,r.e.mx) } }*/
 for _,r:=range outs { fmt.Printf("%-44s tune %.3f %.3f mk %.3f mx %.3f | eval %.4f %.3f mk %.3f mx %.3f\n",r.v.name,r.t.avg,r.t.worst,r.t.mk,r.t.mx,r.e.avg,r.e.worst,r.e.mk,r.e.mx) }
}
