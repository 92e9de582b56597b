From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps Tokens Grow Linear Lossy.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Inductive atom := Owed | Stated | Over of seq (atom * rat).
Definition form := seq (atom * rat).

Fixpoint order (a b : atom) : comparison :=
  match a, b with
  | Owed, Owed => Eq
  | Owed, _ => Lt
  | _, Owed => Gt
  | Stated, Stated => Eq
  | Stated, _ => Lt
  | _, Stated => Gt
  | Over f, Over g =>
    (fix go (f g : form) : comparison :=
      match f, g with
      | [::], [::] => Eq
      | [::], _ => Lt
      | _, [::] => Gt
      | (a, x) :: f', (b, y) :: g' =>
        match order a b with
        | Eq => if x == y then go f' g' else if x < y then Lt else Gt
        | other => other
        end
      end) f g
  end.

Fixpoint insert a (x : rat) (f : form) : form :=
  if f is (b, y) :: f' then
    match order a b with
    | Lt => (a, x) :: f
    | Eq => if x + y == 0 then f' else (b, x + y) :: f'
    | Gt => (b, y) :: insert a x f'
    end
  else [:: (a, x)].

Definition plus (f g : form) : form := foldr (fun t => insert t.1 t.2) f g.
Definition times (k : rat) (f : form) : form := if k == 0 then [::] else [seq (t.1, k * t.2) | t <- f].
Definition minus f g := plus f (times (-1) g).
Definition equal f g := nilp (minus f g).
Definition positive (f : form) := all (fun t => 0 < t.2) f.

Definition relu_of (f : form) : form :=
  if positive f then f
  else if positive (times (-1) f) then [::]
  else if f is (_, x) :: _ then
    if 0 < x then [:: (Over (times x^-1 f), x)]
    else if x < 0 then plus f [:: (Over (times (- x)^-1 (times (-1) f)), - x)]
    else [:: (Over f, 1)]
  else [::].
Definition minimum f g := minus f (relu_of (minus f g)).

Definition owed : form := [:: (Owed, 1)].
Definition stated : form := [:: (Stated, 1)].

Inductive expr :=
| Target
| Draft
| At (e : expr)
| Divide (e d : expr)
| Add (e d : expr)
| Sub (e d : expr)
| Mul (k : rat) (e : expr)
| Min (e d : expr)
| MinOne (e : expr)
| Relu (e : expr)
| Normalize (e : expr).

Inductive kind := Row | Entry | Ratio | Chance | Rest.

Definition alike (k l : kind) :=
  match k, l with Row, Row | Entry, Entry | Ratio, Ratio => true | _, _ => false end.

Definition linear2 (op : form -> form -> form) (a b : option (kind * form)) :=
  if (a, b) is (Some (k, f), Some (l, g)) then if alike k l then Some (k, op f g) else None else None.

Fixpoint value (e : expr) : option (kind * form) :=
  match e with
  | Target => Some (Row, owed)
  | Draft => Some (Row, stated)
  | At e => if value e is Some (Row, f) then Some (Entry, f) else None
  | Divide e d =>
    if (value e, value d) is (Some (Entry, f), Some (Entry, g)) then if equal g stated then Some (Ratio, f) else None else None
  | Add e d => linear2 plus (value e) (value d)
  | Sub e d => linear2 minus (value e) (value d)
  | Mul k e => if value e is Some (l, f) then if alike l l then Some (l, times k f) else None else None
  | Min e d => if (value e, value d) is (Some (Row, f), Some (Row, g)) then Some (Row, minimum f g) else None
  | MinOne e => if value e is Some (Ratio, f) then if positive f then Some (Chance, minimum f stated) else None else None
  | Relu e => if value e is Some (Row, f) then Some (Row, relu_of f) else None
  | Normalize e => if value e is Some (Row, f) then if positive f then Some (Rest, f) else None else None
  end.

Definition coin_mass (e : expr) : option form :=
  match value e with
  | Some (Ratio, f) => if positive f then Some (minimum f stated) else None
  | Some (Chance, f) => Some f
  | _ => None
  end.

Inductive body := Accept | GoOn (e : expr) | Toss (site : nat) (e : expr) (yes no : body).

Fixpoint ends (b : body) (mass : form) : option (form * seq (form * form)) :=
  match b with
  | Accept => Some (mass, [::])
  | GoOn e => if value e is Some (Rest, r) then Some ([::], [:: (mass, r)]) else None
  | Toss _ e yes no =>
    if equal mass stated then
      if coin_mass e is Some m then
        if (ends yes m, ends no (minus mass m)) is (Some (a, l), Some (a', l')) then Some (plus a a', l ++ l') else None
      else None
    else None
  end.

Definition multiple (r f : form) :=
  if (r, f) is ((_, y) :: _, (_, x) :: _) then (0 < y / x) && equal r (times (y / x) f) else false.

Definition pays_off (b : body) :=
  if ends b stated is Some (a, l) then
    let rest := minus owed a in all (fun o => multiple o.2 rest) l && (nilp rest || ~~ nilp l)
  else false.

Fixpoint sites (b : body) := if b is Toss k _ yes no then k :: sites yes ++ sites no else [::].
Definition accepts (b : body) := uniq (sites b) && pays_off b.

Definition of_rejection :=
  Toss 0 (Divide (At Target) (At Draft)) Accept (GoOn (Normalize (Relu (Sub Target Draft)))).
Definition of_half :=
  Toss 0 (Mul (1 / 2%:R) (Divide (At Target) (At Draft))) Accept (GoOn (Normalize (Sub Target (Min (Mul (1 / 2%:R) Target) Draft)))).
Definition of_forgetful := Toss 0 (Divide (At Target) (At Draft)) Accept (GoOn Target).
Time Example a1 : accepts of_rejection. Proof. by vm_compute. Qed.
Time Example a2 : accepts of_half. Proof. by vm_compute. Qed.
Time Example a3 : ~~ accepts of_forgetful. Proof. by vm_compute. Qed.

Lemma order_eq : forall a b, order a b = Eq -> a = b.
Proof.
fix IH 1; case=> [||f] [||g] //= e; congr Over; move: f g e.
fix go 1; case=> [|[a x] f] [|[b y] g] //=; case e: (order a b) => //.
by case: eqP => [->|_]; [move/go->; rewrite (IH _ _ e) | case: ifP].
Qed.

Section Sound.
Variables (R : realFieldType) (V : finType).
Notation row := (row R V).
Notation M := (M R).
Implicit Types (p q : R) (f g : form).

Fixpoint at_atom p q (a : atom) : R :=
  match a with
  | Owed => p
  | Stated => q
  | Over f => relu (foldr (fun t r => ratr t.2 * at_atom p q t.1 + r) 0 f)
  end.

Definition ev p q f : R := foldr (fun t r => ratr t.2 * at_atom p q t.1 + r) 0 f.

Lemma ev_cons p q a x f : ev p q ((a, x) :: f) = ratr x * at_atom p q a + ev p q f. Proof. by []. Qed.
Lemma ev_nil p q : ev p q [::] = 0. Proof. by []. Qed.
Arguments ev : simpl never.

Lemma ev_one p q a x : ev p q [:: (a, x)] = ratr x * at_atom p q a. Proof. by rewrite ev_cons ev_nil addr0. Qed.

Lemma ev_insert p q a x f : ev p q (insert a x f) = ratr x * at_atom p q a + ev p q f.
Proof.
elim: f => [|[b y] f IH] //=; case e: (order a b) => //; last by rewrite !ev_cons IH addrCA.
rewrite (order_eq e) ev_cons addrA -mulrDl -rmorphD /=; case: eqP => [->|_] //.
by rewrite raddf0 mul0r add0r.
Qed.

Lemma ev_plus p q f g : ev p q (plus f g) = ev p q f + ev p q g.
Proof. 
elim: g => [|[a x] g IH]; first by rewrite ev_nil addr0.
by rewrite [plus _ _]/(insert a x (plus f g)) ev_insert IH ev_cons addrCA. Qed.

Lemma ev_times p q k f : ev p q (times k f) = ratr k * ev p q f.
Proof.
rewrite /times; case: eqP => [->|_]; first by rewrite raddf0 mul0r.
by elim: f => [|[a x] f IH]; rewrite ?ev_nil ?mulr0 //= !ev_cons IH rmorphM mulrDr mulrA.
Qed.

Lemma ev_minus p q f g : ev p q (minus f g) = ev p q f - ev p q g.
Proof. by rewrite ev_plus ev_times rmorphN rmorph1 mulN1r. Qed.

Lemma ev_equal p q f g : equal f g -> ev p q f = ev p q g.
Proof. by move/nilP => e; apply/eqP; rewrite -subr_eq0 -ev_minus e. Qed.

Lemma ev_owed p q : ev p q owed = p. Proof. by rewrite ev_one rmorph1 mul1r. Qed.
Lemma ev_stated p q : ev p q stated = q. Proof. by rewrite ev_one rmorph1 mul1r. Qed.

Lemma at_ge0 p q : 0 <= p -> 0 <= q -> forall a, 0 <= at_atom p q a.
Proof. by move=> p0 q0 [||f] //; exact: relu_ge0. Qed.

Lemma ev_ge0 p q f : 0 <= p -> 0 <= q -> positive f -> 0 <= ev p q f.
Proof.
move=> p0 q0; elim: f => //= -[a x] f IH /= /andP[x0 /IH h].
by rewrite ev_cons addr_ge0 // mulr_ge0 ?at_ge0 // ler0q ltW.
Qed.

Lemma relu_pos (r : R) : 0 <= r -> relu r = r. Proof. by move=> h; rewrite /relu max_l. Qed.
Lemma relu_neg (r : R) : r <= 0 -> relu r = 0. Proof. by move=> h; rewrite /relu max_r. Qed.
Lemma relu_scale (k r : R) : 0 <= k -> relu (k * r) = k * relu r.
Proof. by move=> k0; rewrite /relu maxr_pmulr // mulr0. Qed.
Lemma relu_opp (r : R) : relu (- r) = relu r - r.
Proof.
by case: (lerP 0 r) => h; [rewrite relu_neg ?oppr_le0 // relu_pos // subrr | rewrite relu_pos ?oppr_ge0 1?ltW // relu_neg ?ltW // sub0r].
Qed.

Lemma ev_over p q f : ev p q [:: (Over f, 1)] = relu (ev p q f).
Proof. by rewrite ev_one rmorph1 mul1r. Qed.

Lemma ev_relu p q f : 0 <= p -> 0 <= q -> ev p q (relu_of f) = relu (ev p q f).
Proof.
move=> p0 q0; rewrite /relu_of; case: ifP => [h|_]; first by rewrite relu_pos ?ev_ge0.
case: ifP => [h|_].
  have := ev_ge0 p0 q0 h; rewrite ev_times rmorphN rmorph1 mulN1r oppr_ge0 => le; by rewrite relu_neg.
case: f => [|[a x] f]; first by rewrite /= relu_pos.
set g := (a, x) :: f; have scaled k h : 0 < k -> ev p q [:: (Over (times k^-1 h), k)] = relu (ev p q h).
  move=> k0; rewrite ev_one /= -/(ev p q (times k^-1 h)) -relu_scale; last by rewrite ler0q ltW.
  by rewrite ev_times mulrA -rmorphM mulfV ?gt_eqF // rmorph1 mul1r.
case: ifP => [x0|_]; first exact: scaled.
case: ifP => [x0|_]; last by rewrite ev_one rmorph1 mul1r.
by rewrite ev_plus scaled ?oppr_gt0 // ev_times rmorphN rmorph1 mulN1r relu_opp addrCA subrr addr0.
Qed.

Lemma ev_minimum p q f g : 0 <= p -> 0 <= q -> ev p q (minimum f g) = Num.min (ev p q f) (ev p q g).
Proof.
move=> p0 q0; rewrite ev_minus ev_relu // ev_minus /relu.
case: (lerP (ev p q f) (ev p q g)) => h; first by rewrite max_r ?subr_le0 // subr0.
by rewrite max_l ?subr_ge0 1?ltW // opprB addrCA subrr addr0.
Qed.

(** What the ops of a rule mean: of a row it is the row, of a number the row that is this number at every token. *)
Fixpoint sem (p q : row) (x : V) (e : expr) : row :=
  match e with
  | Target => p
  | Draft => q
  | At e => fun=> sem p q x e x
  | Divide e d => fun v => sem p q x e v / sem p q x d v
  | Add e d => fun v => sem p q x e v + sem p q x d v
  | Sub e d => fun v => sem p q x e v - sem p q x d v
  | Mul k e => fun v => ratr k * sem p q x e v
  | Min e d => fun v => Num.min (sem p q x e v) (sem p q x d v)
  | MinOne e => fun v => Num.min 1 (sem p q x e v)
  | Relu e => fun v => relu (sem p q x e v)
  | Normalize e => normalize (sem p q x e)
  end.

Section One.
Variables (p q : row) (x : V).
Hypotheses (p0 : forall v, 0 <= p v) (q0 : forall v, 0 <= q v) (qx : q x != 0).

Definition entry f : row := fun v => ev (p v) (q v) f.

Definition means (k : kind) f (r : row) : Prop :=
  match k with
  | Row => r =1 entry f
  | Entry => forall v, r v = entry f x
  | Ratio => forall v, r v = entry f x / q x
  | Chance => 0 <= entry f x <= q x /\ forall v, r v = entry f x / q x
  | Rest => positive f /\ r =1 normalize (entry f)
  end.

Lemma min_chance (a b : R) : 0 < b -> Num.min 1 (a / b) = Num.min a b / b.
Proof.
move=> b0; case: (lerP a b) => h; first by rewrite min_r // ler_pdivr_mulr ?mul1r.
by rewrite min_l ?divff ?gt_eqF // ler_pdivl_mulr ?mul1r 1?ltW.
Qed.

Lemma qx_gt0 : 0 < q x. Proof. by rewrite lt_neqAle eq_sym qx q0. Qed.

Lemma minimum_stated f : positive f -> 0 <= entry (minimum f stated) x <= q x.
Proof.
by move=> f0; rewrite /entry ev_minimum // ev_stated le_minl lexx orbT le_minr q0 ev_ge0.
Qed.

Lemma value_means e k f : value e = Some (k, f) -> means k f (sem p q x e).
Proof.
have two (op : form -> form -> form) (h : R -> R -> R) a b r s k' g :
    (forall u f' g', entry (op f' g') u = h (entry f' u) (entry g' u)) -> (forall u w, h u w / q x = h (u / q x) (w / q x)) ->
    (forall l g', a = Some (l, g') -> means l g' r) -> (forall l g', b = Some (l, g') -> means l g' s) ->
    linear2 op a b = Some (k', g) -> means k' g (fun v => h (r v) (s v)).
  move=> hop hdiv; case: a => [[l f']|//] ha; case: b => [[l' g']|] hb; last by case: l {ha}.
  have {}ha := ha _ _ erefl; have {}hb := hb _ _ erefl; rewrite /linear2.
  case: l ha; case: l' hb => //= hs hr [<- <-] /= v; by rewrite ?hr ?hs ?hop ?hdiv.
elim: e k f => [||e IH|e IHe d IHd|e IHe d IHd|e IHe d IHd|c e IH|e IHe d IHd|e IH|e IH|e IH] k f /=.
- by case=> <- <- v; rewrite /entry ev_owed.
- by case=> <- <- v; rewrite /entry ev_stated.
- by case e1: (value e) => [[[] g]|] // [<- <-] v; rewrite (IH _ _ e1).
- case e1: (value e) => [[[] g]|] //; case e2: (value d) => [[[] h]|] //; case: ifP => // eq [<- <-] v.
  by rewrite (IHe _ _ e1) (IHd _ _ e2) {2}/entry (ev_equal _ _ eq) ev_stated.
- apply: two => // [u f' g'|u w]; [exact: ev_plus | exact: mulrDl].
- by apply: (two minus (fun a b => a - b)) => // [u f' g'|u w]; [exact: ev_minus | exact: mulrBl].
- case e1: (value e) => [[l g]|] //; have := IH _ _ e1; case: l {e1} => //= hr [<- <-] v; by rewrite hr /entry ev_times ?mulrA.
- case e1: (value e) => [[[] g]|] //; case e2: (value d) => [[[] h]|] // [<- <-] v.
  by rewrite (IHe _ _ e1) (IHd _ _ e2) /entry ev_minimum.
- case e1: (value e) => [[[] g]|] //; case: ifP => // g0 [<- <-]; split=> [|v]; first exact: minimum_stated.
  by rewrite (IH _ _ e1) min_chance ?qx_gt0 // /entry ev_minimum // ev_stated.
- by case e1: (value e) => [[[] g]|] // [<- <-] v; rewrite (IH _ _ e1) /entry ev_relu.
- case e1: (value e) => [[[] g]|] //; case: ifP => // g0 [<- <-]; split=> // v.
  by rewrite /normalize (IH _ _ e1) /total (eq_bigr _ (fun u _ => IH _ _ e1 u)).
Qed.

(** A coin falls with the mass that the certificate says. *)
Lemma coin_means e m : coin_mass e = Some m -> q x * clip (sem p q x e x) = entry m x.
Proof.
rewrite /coin_mass; case e1: (value e) => [[[] f]|] //; have := value_means e1.
  case: ifP => // f0 /= h [<-]; rewrite h /entry ev_minimum // ev_stated.
  rewrite /clip min_chance ?qx_gt0 // max_r.
    by rewrite mulrC divfK.
  by rewrite divr_ge0 // le_minr q0 ev_ge0.
by case=> /andP[m0 m1] h [<-]; rewrite h clip_id ?(divr_ge0, ler_pdivr_mulr) ?mul1r ?qx_gt0 ?m0 // mulrC divfK.
Qed.

End One.

Lemma coin_bounds e m (p q : R) : coin_mass e = Some m -> 0 <= p -> 0 <= q -> 0 <= ev p q m <= q.
Proof.
have low f : positive f -> 0 <= p -> 0 <= q -> 0 <= ev p q (minimum f stated) <= q.
  by move=> f0 p0 q0; rewrite ev_minimum // ev_stated le_minl lexx orbT le_minr q0 ev_ge0.
have two op a b f : linear2 op a b = Some (Chance, f) -> False.
  by case: a => [[[] ?]|//]; case: b => [[[] ?]|].
rewrite /coin_mass; case e1: (value e) => [[[] f]|] //; first by case: ifP => // f0 [<-]; exact: low.
case=> <-; case: e e1 => //= [e|e d|e d|e d|k e|e d|e|e|e].
- by case: (value e) => [[[] ?]|].
- by case: (value e) => [[[] ?]|] //; case: (value d) => [[[] ?]|] //; case: ifP.
- by move/two.
- by move/two.
- by case: (value e) => [[[] ?]|].
- by case: (value e) => [[[] ?]|] //; case: (value d) => [[[] ?]|].
- by case: (value e) => [[[] g]|] //; case: ifP => // g0 [<-]; exact: low.
- by case: (value e) => [[[] ?]|].
- by case: (value e) => [[[] ?]|] //; case: ifP.
Qed.

(** Everything that comes out has a share of the mass, and the shares add up. *)
Lemma ends_mass b m a l (p q : R) : ends b m = Some (a, l) -> ev p q a + \sum_(o <- l) ev p q o.1 = ev p q m.
Proof.
elim: b m a l => [|e|k e yes IHy no IHn] m a l /=.
- by case=> <- <-; rewrite big_nil addr0.
- by case: (value e) => [[[] r]|] // [<- <-]; rewrite big_cons big_nil addr0 add0r.
- case: ifP => // _; case: (coin_mass e) => // c; case ey: (ends yes c) => [[a1 l1]|] //.
  case en: (ends no (minus m c)) => [[a2 l2]|] // [<- <-].
  by rewrite big_cat ev_plus addrACA (IHy _ _ _ ey) (IHn _ _ _ en) ev_minus addrCA subrr addr0.
Qed.

Lemma ends_ge0 b m a l (p q : R) : ends b m = Some (a, l) -> 0 <= p -> 0 <= q -> 0 <= ev p q m ->
  0 <= ev p q a /\ all (fun o => 0 <= ev p q o.1) l.
Proof.
move=> + p0 q0; elim: b m a l => [|e|k e yes IHy no IHn] m a l /=.
- by case=> <- <-.
- by case: (value e) => [[[] r]|] // [<- <-] /= ->; rewrite ev_nil.
- case: ifP => // ms; case ec: (coin_mass e) => [c|] //; case ey: (ends yes c) => [[a1 l1]|] //.
  case en: (ends no (minus m c)) => [[a2 l2]|] // [<- <-] _; case/andP: (coin_bounds ec p0 q0) => c0 c1.
  case: (IHy _ _ _ ey c0) => a10 l10; case: (IHn _ _ _ en) => [|a20 l20].
    by rewrite ev_minus (ev_equal _ _ ms) ev_stated subr_ge0.
  by rewrite ev_plus addr_ge0 // all_cat l10.
Qed.

Lemma ends_positive b m a l : ends b m = Some (a, l) -> all (fun o => positive o.2) l.
Proof.
elim: b m a l => [|e|k e yes IHy no IHn] m a l /=; first by case=> _ <-.
- case e1: (value e) => [[[] r]|] // [_ <-] /=; rewrite andbT; case: e e1 => //= [e|e d|e d|e d|c e|e d|e|e|e].
  + by case: (value e) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|] //; case: (value d) => [[[] ?]|] //; case: ifP.
  + by case: (value e) => [[[] ?]|//]; case: (value d) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|//]; case: (value d) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|] //; case: (value d) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|] //; case: ifP.
  + by case: (value e) => [[[] ?]|].
  + by case: (value e) => [[[] ?]|] //; case: ifP => // h [<-].
- case: ifP => // _; case: (coin_mass e) => // c; case ey: (ends yes c) => [[a1 l1]|] //.
  case en: (ends no (minus m c)) => [[a2 l2]|] // [_ <-].
  by rewrite all_cat (IHy _ _ _ ey) (IHn _ _ _ en).
Qed.

(** One iteration: a coin of the language falls, the child is accepted ([None]), or another row is owed. *)
Fixpoint perform (p q : row) x (b : body) : M (option row) :=
  match b with
  | Accept => ret None
  | GoOn e => ret (Some (sem p q x e))
  | Toss _ e yes no => c <- coin (sem p q x e x) ;; if c then perform p q x yes else perform p q x no
  end.

(** The rule that a certificate describes: what is owed is at first the target's row, and a draw of it is emitted in the end. *)
Definition rule_of (b : body) : rule R V := {|
  carried := row;
  start (p : row) := ret p;
  look (p : row) x (q : row) := perform p q x b;
  stop (p : row) := draw p
|}.

Section Two.
Variables (p q : row).
Hypotheses (p0 : forall v, 0 <= p v) (q0 : forall v, 0 <= q v).
Notation entry := (entry p q).

Lemma eq_row_dot (r s : row) (f : V -> R) : r =1 s -> dot r f = dot s f.
Proof. by move=> e; apply: eq_bigr => v _; rewrite e. Qed.

Lemma ends_owe b m a l x (f : V -> R) : ends b m = Some (a, l) -> q x != 0 ->
  entry m x * E (perform p q x b) (pays id f x) = entry a x * f x + \sum_(o <- l) entry o.1 x * dot (normalize (entry o.2)) f.
Proof.
move=> + qx; elim: b m a l => [|e|k e yes IHy no IHn] m a l /=.
- by case=> <- <-; rewrite E_ret big_nil addr0.
- case e1: (value e) => [[[] r]|] // [<- <-]; have z : entry [::] x = 0 by rewrite /entry ev_nil.
  rewrite E_ret big_seq1 z mul0r add0r /=.
  by case: (value_means p0 q0 qx e1) => _ h; rewrite (eq_row_dot _ h).
- case: ifP => // ms; case ec: (coin_mass e) => [c|] //; case ey: (ends yes c) => [[a1 l1]|] //.
  case en: (ends no (minus m c)) => [[a2 l2]|] // [<- <-]; rewrite E_bind E_coin big_cat /=.
  have mq : entry m x = q x by rewrite /entry (ev_equal _ _ ms) ev_stated.
  rewrite {1}mq mulrDr !mulrA mulrBr mulr1 (coin_means p0 q0 qx ec) (IHy _ _ _ ey).
  have -> : q x - entry c x = entry (minus m c) x by rewrite /entry ev_minus -/(entry m x) mq.
  have -> : entry (plus a1 a2) x = entry a1 x + entry a2 x by rewrite /entry ev_plus.
  by rewrite (IHn _ _ _ en) mulrDl addrACA.
Qed.

Lemma ends_reached b m a l x : ends b m = Some (a, l) -> q x != 0 -> entry m x != 0 ->
  always (fun o => if o is Some s then exists2 o', List.In o' l & entry o'.1 x != 0 /\ s =1 normalize (entry o'.2) else True)
    (perform p q x b).
Proof.
move=> + qx; elim: b m a l => [|e|k e yes IHy no IHn] m a l /=.
- by split.
- case e1: (value e) => [[[] r]|] // [_ <-] mx; split=> // _; exists (m, r); first by left.
  by case: (value_means p0 q0 qx e1).
- case: ifP => // ms; case ec: (coin_mass e) => [c|] //; case ey: (ends yes c) => [[a1 l1]|] //.
  case en: (ends no (minus m c)) => [[a2 l2]|] // [_ <-] mx; apply: always_bind.
  have cx := coin_means p0 q0 qx ec; split=> [w|].
    apply: always_impl (IHy _ _ _ ey _) => [[s|] // [o i h]|]; last by rewrite -cx mulf_neq0.
    by exists o => //; apply/List.in_or_app; left.
  split=> // w; apply: always_impl (IHn _ _ _ en _) => [[s|] // [o i h]|].
    by exists o => //; apply/List.in_or_app; right.
  by rewrite /entry ev_minus (ev_equal _ _ ms) ev_stated -/(entry c x) -cx -[X in X - _]mulr1 -mulrBr mulf_neq0.
Qed.

End Two.

Lemma all_In T (P : pred T) (l : seq T) o : all P l -> List.In o l -> P o.
Proof. by elim: l => //= u l IH /andP[Pu /IH h] [<-|]. Qed.

Lemma big_In T (F G : T -> R) (l : seq T) : (forall o, List.In o l -> F o = G o) -> \sum_(o <- l) F o = \sum_(o <- l) G o.
Proof.
elim: l => [|o l IH] h; rewrite ?big_nil // !big_cons h ?IH //=; last by left.
by move=> u i; apply: h; right.
Qed.

Lemma ev_multiple r f : multiple r f -> exists2 k : R, 0 < k & forall p q, ev p q r = k * ev p q f.
Proof.
case: r => [|[b y] r]; case: f => [|[c z] f] //= /andP[k0 e]; exists (ratr (y / z)); first by rewrite ltr0q.
by move=> p q; rewrite (ev_equal _ _ e) ev_times.
Qed.

Lemma normalize_scale (k : R) (r s : row) : k != 0 -> (forall v, r v = k * s v) -> normalize r =1 normalize s.
Proof.
by move=> k0 h v; rewrite /normalize /total (eq_bigr _ (fun u _ => h u)) -mulr_sumr h -mulf_div divff // mul1r.
Qed.

Theorem pays_off_lossless b : pays_off b -> @lossless R V (rule_of b) (@law R V) id.
Proof.
rewrite /pays_off; case eb: (ends b stated) => [[a l]|] //; set rest := minus owed a => /andP[mult some].
have shared (p q : row) (f : V -> R) o : List.In o l -> dot (normalize (entry p q o.2)) f = dot (normalize (entry p q rest)) f.
  move=> i; have [k k0 h] := ev_multiple (all_In mult i).
  by apply/eq_row_dot/(normalize_scale (lt0r_neq0 k0)) => v; exact: h.
have rest0 (p q : row) v : (forall v, 0 <= p v) -> (forall v, 0 <= q v) -> 0 <= entry p q rest v.
  move=> p0 q0; case: l eb mult some {shared} => [|o l] eb /=; first by rewrite orbF => _ /nilP ->; rewrite /entry ev_nil.
  case/andP=> /ev_multiple[k k0 h] _ _; rewrite -(pmulr_rge0 _ k0) -h ev_ge0 //.
  by have /= /andP[] := ends_positive eb.
have sum_rest (p q : row) : law p -> law q -> \sum_x (q x - entry p q a x) = total (entry p q rest).
  move=> [_ p1] [_ q1]; have -> : total (entry p q rest) = \sum_v (p v - entry p q a v).
    by apply: eq_bigr => v _; rewrite /entry ev_minus ev_owed.
  by rewrite !sumrB p1 q1.
have left_over (p q : row) x : q x - entry p q a x = \sum_(o <- l) entry p q o.1 x.
  by rewrite -[q x](ev_stated (p x)) -(ends_mass _ _ eb) addrC addKr.
have mass0 (p q : row) x : law p -> law q -> 0 <= entry p q a x /\ all (fun o => 0 <= entry p q o.1 x) l.
  by move=> [p0 _] [q0 _]; apply: ends_ge0 eb _ _ _ => //; rewrite ev_stated.
have others0 (p q : row) x : law p -> law q -> 0 <= \sum_(o <- l) entry p q o.1 x.
  move=> lp lq; case: (mass0 p q x lp lq) => _; elim: (l) => [|o l' IH] /=; rewrite ?big_nil // big_cons.
  by case/andP=> o0 /IH; exact: addr_ge0.
split=> /= [p lp f|p lp|p q lp lq f|p q x lp lq qx|p lp f]; first by rewrite E_ret.
- exact: always_ret.
- have [p0 p1] := lp; have [q0 q1] := lq; pose D := dot (normalize (entry p q rest)) f.
  have step x : q x * E (perform p q x b) (pays id f x) = entry p q a x * f x + (q x - entry p q a x) * D.
    have [qx|qx] := eqVneq (q x) 0.
      have := left_over p q x; have := others0 p q x lp lq; case: (mass0 p q x lp lq) => a0 _ o0 e.
      rewrite -e qx sub0r oppr_ge0 in o0; have {}a0 : entry p q a x = 0 by apply/eqP; rewrite eq_le a0 o0.
      by rewrite qx a0 !mul0r subr0 mul0r addr0.
    rewrite -[X in X * E _ _](ev_stated (p x)) (ends_owe p0 q0 f eb qx); congr (_ + _).
    by rewrite left_over mulr_suml; apply: big_In => o i; rewrite shared.
  rewrite {1}/dot (eq_bigr _ (fun x _ => step x)) big_split -mulr_suml sum_rest //= -/(dot _ f) /D dot_normalize.
  have dots : dot p f = dot (entry p q a) f + dot (entry p q rest) f.
    rewrite /dot -big_split; apply: eq_bigr => v _ /=.
    by rewrite -mulrDl /entry ev_minus ev_owed addrCA subrr addr0.
  rewrite dots; congr (_ + _); have [t0|t0] := eqVneq (total (entry p q rest)) 0; last by rewrite mulrC divfK.
  rewrite t0 mul0r /dot big1 // => v _; move/eqP: t0; rewrite /total psumr_eq0 => [/allP z|u _]; last exact: rest0.
  by have /eqP -> := z v (mem_index_enum v); rewrite mul0r.
- have [p0 p1] := lp; have [q0 q1] := lq.
  apply: always_impl (ends_reached p0 q0 eb qx _) => [[s|] // [o i [ox e]]|]; last by rewrite /entry ev_stated.
  have [k k0 h] := ev_multiple (all_In mult i).
  have l1 : law (normalize (entry p q o.2)).
    apply: law_normalize => [v|]; first by rewrite /entry ev_ge0 //; apply: all_In (ends_positive eb) i.
    rewrite /total (eq_bigr _ (fun v _ => h (p v) (q v))) -mulr_sumr mulf_neq0 ?(gt_eqF k0) //.
    apply: contraNneq ox => t0; have := sum_rest p q lp lq; rewrite /total /entry t0 => /eqP.
    rewrite psumr_eq0 => [/allP z|v _]; last by rewrite left_over others0.
    have /eqP := z x (mem_index_enum x); rewrite left_over; case: (mass0 p q x lp lq) => _.
    elim: (l) i {z} => //= u l' IH i /andP[u0 l0]; rewrite big_cons => /eqP.
    rewrite paddr_eq0 // => [/andP[/eqP uz /eqP lz]|]; last first.
      by elim: (l') l0 {IH i} => [|o' l2 IH2] /=; rewrite ?big_nil // big_cons => /andP[? /IH2]; exact: addr_ge0.
    by case: i => [<-|i]; [apply/eqP | exact: IH].
  case: l1 => l0 l1; split=> [v|]; first by rewrite e.
  by rewrite (eq_bigr _ (fun v _ => e v)).
- by rewrite E_draw.
Qed.
End Sound.

(** ** Noise *)
Section Noise.
Variables (R : realFieldType) (K : eqType) (N : Type) (n0 : N).
Notation M := (M R).
Variable noise : K -> M N.
Hypothesis noise_prob : forall k, prob (noise k).

Inductive reads (A : Type) := Ret (a : A) | Ask (k : K) (h : N -> reads A).

Fixpoint rbind A B (r : reads A) (g : A -> reads B) : reads B :=
  match r with Ret a => g a | Ask k h => Ask k (fun n => rbind (h n) g) end.

(** With a table of all noise it is a function; with noise of its own, a distribution. *)
Fixpoint told A (w : K -> N) (r : reads A) : A := match r with Ret a => a | Ask k h => told w (h (w k)) end.
Fixpoint play A (r : reads A) : M A := match r with Ret a => ret a | Ask k h => n <- noise k ;; play (h n) end.

(** What it asks is of these noises; and it asks none twice, nor one that was asked before. *)
Fixpoint asks A (ks : seq K) (r : reads A) : Prop :=
  match r with Ret _ => True | Ask k h => k \in ks /\ forall n, asks ks (h n) end.

Fixpoint once A (seen : seq K) (r : reads A) : Prop :=
  match r with Ret _ => True | Ask k h => k \notin seen /\ forall n, once (k :: seen) (h n) end.

Lemma told_bind A B (r : reads A) (g : A -> reads B) w : told w (rbind r g) = told w (g (told w r)).
Proof. by elim: r => //= k h IH; exact: IH. Qed.

Lemma play_bind A B (r : reads A) (g : A -> reads B) : play (rbind r g) ~ (a <- play r ;; play (g a)).
Proof.
move=> f; elim: r => [a|k h IH] /=; first by rewrite E_bind E_ret.
by rewrite !E_bind; apply: eq_E => n; rewrite IH E_bind.
Qed.

Lemma prob_play A (r : reads A) : prob (play r).
Proof. by elim: r => [a|k h IH] /=; [exact: prob_ret | apply: prob_bind => //; exact: always_true]. Qed.

Lemma asks_sub A ks ks' (r : reads A) : {subset ks <= ks'} -> asks ks r -> asks ks' r.
Proof. by move=> sub; elim: r => //= k h IH [/sub i f]; split=> // n; exact: IH. Qed.

Lemma asks_bind A B ks (r : reads A) (g : A -> reads B) : asks ks r -> (forall a, asks ks (g a)) -> asks ks (rbind r g).
Proof. by elim: r => //= k h IH [i f] ag; split=> // n; exact: IH. Qed.

Lemma once_seen A s s' (r : reads A) : {subset s' <= s} -> once s r -> once s' r.
Proof.
elim: r s s' => //= k h IH s s' sub [n f]; split=> [|b]; first by apply: contra n; exact: sub.
by apply: IH (f b) => j; rewrite !inE => /orP[->//|/sub ->]; rewrite orbT.
Qed.

Lemma once_bind A B dk s (r : reads A) (g : A -> reads B) :
  once s r -> asks dk r -> (forall a, once (dk ++ s) (g a)) -> once s (rbind r g).
Proof.
elim: r s => [a|k h IH] s /=.
  by move=> _ _ og; apply: once_seen (og a) => j; rewrite mem_cat orbC => ->.
case=> n f [i ah] og; split=> // b; apply: IH => // a.
by apply: once_seen (og a) => j; rewrite !mem_cat inE => /orP[->//|/orP[/eqP ->|->]]; rewrite ?i ?orbT.
Qed.

Lemma told_unseen A (r : reads A) s w w' : once s r -> (forall k, k \notin s -> w k = w' k) -> told w r = told w' r.
Proof.
elim: r s => //= k h IH s [n f] e; rewrite -e //; apply: (IH _ (k :: s)) => // j; rewrite inE => /norP[_]; exact: e.
Qed.

(** A program that asks no noise twice does with one table what it would do with noise of its own for each question. *)
Theorem told_play A (r : reads A) ks : uniq ks -> asks ks r -> once [::] r ->
  fmap (fun w => told w r) (table n0 noise ks) ~ play r.
Proof.
move=> uks; move: [::]; elim: r => [a|k h IH] s /=.
  by move=> _ _ f; rewrite E_fmap E_ret E_const //; exact: mass_table.
case=> i ah [n oh] f; rewrite E_fmap E_bind.
rewrite (table_split n0 noise_prob (F := fun b w => f (told w (h b))) uks i) => [|b w w' e].
  by apply: eq_E => b; rewrite -(IH b (k :: s) (ah b) (oh b)) E_fmap.
by rewrite (told_unseen (oh b) (w' := w')) // => j; rewrite inE => /norP[jk _]; exact: e.
Qed.

(** A drafting program of Linear.v as one that asks. *)
Section Drafting.
Variables (V : finType) (x0 : V) (pick : row R V -> N -> V).

Fixpoint drafts A (p : linear R V K N A) (l : seq (V * row R V)) (t : tree R V) : reads (tree R V * A * seq (V * row R V)) :=
  match p with
  | End a => Ret (t, a, l)
  | Read k h => Ask k (fun n => drafts (h n) l t)
  | Sample k q h => Ask k (fun n => drafts h (rcons l (pick q n, q)) t)
  | Put i place h => let o := nth (absent R x0) l i in drafts (h o.1) (others i l) (grow place o.1 o.2 t)
  | See i h => drafts (h (nth (absent R x0) l i).1) (others i l) t
  end.

Lemma told_drafts A (p : linear R V K N A) l t w : told w (drafts p l t) = exec x0 pick w p l t.
Proof. by elim: p l t => //= *. Qed.

Lemma once_drafts A (p : linear R V K N A) ks s l t : fresh noise pick ks s p -> asks ks (drafts p l t) /\ once s (drafts p l t).
Proof.
elim: p s l t => [a|k h IH|k q h IH|i place h IH|i h IH] s l t //=.
- by case=> i n f; split; split=> // b; case: (IH b _ l t (f b)).
- by case=> i n _ _ f; split; split=> // b; case: (IH _ (rcons l (pick q b, q)) t f).
- by move=> f; exact: IH.
- by move=> f; exact: IH.
Qed.

Lemma never A (P : pred A) (d : M A) : all (fun o => 0 <= o.1) d -> E d (fun a => (~~ P a)%:R) = 0 -> always P d.
Proof.
elim: d => //= -[w a] d IH /= /andP[w0 d0]; rewrite E_cons => /eqP.
rewrite paddr_eq0 ?mulr_ge0 ?ler0n //; last first.
  by elim: d d0 {IH} => [|o d IH] /=; rewrite ?E_nil // /E big_cons => /andP[? /IH]; apply: addr_ge0; rewrite mulr_ge0 ?ler0n.
case/andP=> wa /eqP /(IH d0) ad; split=> // wn; move: wa; rewrite mulf_eq0 (negPf wn) pnatr_eq0 /=.
by case: (P a).
Qed.

Lemma faithful_mass k q : law q -> fmap (pick q) (noise k) ~ draw q -> always (fun n => q (pick q n) != 0) (noise k).
Proof.
move=> lq e; apply: (never (P := fun n => q (pick q n) != 0)); first by case: (noise_prob k).
have := e (fun v => (~~ (q v != 0))%:R); rewrite E_fmap E_draw => ->.
by rewrite /dot big1 // => v _; case: eqP => [->|_]; rewrite ?mul0r ?mulr0.
Qed.

Let good (o : V * row R V) := law o.2 /\ o.2 o.1 != 0.

Lemma good_others i l : List.Forall good l -> List.Forall good (others i l).
Proof.
move=> g; have sub n : List.Forall good (take n l) /\ List.Forall good (drop n l).
  elim: n l g => [|n IH] [|o l] g //=; split=> //; inversion_clear g; case: (IH l) => // t d.
  by constructor.
by rewrite /others; apply/List.Forall_app; split; [case: (sub i) | case: (sub i.+1)].
Qed.

Lemma good_nth i l : List.Forall good l -> good (nth (absent R x0) l i).
Proof.
move=> g; elim: g i => [|o l' go _ IH] [|i] //=; split; rewrite /= ?nth_nil /onehot ?eqxx ?oner_eq0 //; exact: law_onehot.
Qed.

(** Every draft can have been drawn. *)
Lemma drafts_drawn A (p : linear R V K N A) ks s l t : fresh noise pick ks s p -> List.Forall good l -> drawn t ->
  always (fun o => drawn o.1.1) (play (drafts p l t)).
Proof.
elim: p s l t => [a|k h IH|k q h IH|i place h IH|i h IH] s l t /=.
- by move=> _ _ dt; apply: always_ret.
- by case=> _ _ f gl dt; apply: always_bind; apply: always_true => n; exact: IH.
- case=> _ _ lq e f gl dt; apply: always_bind; apply: always_impl (faithful_mass lq e) => n qn.
  apply: IH f _ dt; rewrite -cats1; apply/List.Forall_app; split=> //; by constructor.
- move=> f gl dt; have [lq qx] := good_nth i gl; apply: IH (f _) (good_others i gl) _; exact: drawn_grow.
- by move=> f gl dt; apply: IH (f _) (good_others i gl) dt.
Qed.
End Drafting.
End Noise.

(** ** The theorem of [rule-lossless], with the noises of the rule *)
Section Verified.
Variables (R : realFieldType) (V : finType) (K : eqType) (N : Type) (n0 : N) (x0 : V).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Notation reads := (reads K N).
Variable noise : K -> M N.
Hypothesis noise_prob : forall k, prob (noise k).
Variables (pick : row -> N -> V) (toss : R -> N -> bool).

(** The noises of a rule go by the depth of the node and the child (none for what is drawn after the children), and by their site. *)
Variable key : nat -> option (nat * nat) -> K.
Hypothesis key_inj : forall d o d' o', key d o = key d' o' -> d = d' /\ o = o'.
Hypothesis tosses : forall d o r, fmap (toss r) (noise (key d (Some o))) ~ coin r.
Hypothesis picks : forall d p, law p -> fmap (pick p) (noise (key d None)) ~ draw p.

Variables (target : text -> row) (b : body).
Hypothesis target_law : forall c, law (target c).

Fixpoint ask_body d j (p q : row) x (b : body) : reads (option row) :=
  match b with
  | Accept => Ret _ _ None
  | GoOn e => Ret _ _ (Some (sem p q x e))
  | Toss s e yes no =>
    Ask (key d (Some (j, s))) (fun n => if toss (sem p q x e x) n then ask_body d j p q x yes else ask_body d j p q x no)
  end.

Fixpoint ask_walk c d j (t : tree R V) (p : row) : reads text :=
  if t is Node x q below next then
    rbind (ask_body d j p q x b) (fun o =>
      if o is Some p' then ask_walk c d j.+1 next p'
      else rbind (ask_walk (rcons c x) d.+1 0%N below (target (rcons c x))) (fun w => Ret _ _ (x :: w)))
  else Ask (key d None) (fun n => Ret _ _ [:: pick p n]).

Lemma play_body d j p q x b' : play noise (ask_body d j p q x b') ~ perform p q x b'.
Proof.
elim: b' => [|e|s e yes IHy no IHn] //= f; rewrite !E_bind -(tosses d (j, s)) E_fmap.
by apply: eq_E => n; case: (toss _ n); rewrite ?IHy ?IHn.
Qed.

Hypothesis good : accepts b.
Let L : @lossless R V (rule_of R V b) (@law R V) id := pays_off_lossless R V (proj2 (andP good)).

Lemma play_walk t c d j p : drawn t -> law p -> play noise (ask_walk c d j t p) ~ descend target c t (p : carried (rule_of R V b)).
Proof.
elim: t c d j p => [|x q below IHb next IHn] c d j p /=.
  by move=> _ lp f; rewrite !E_bind -(picks d lp) E_fmap.
case=> lq qx db dn lp f; rewrite play_bind !E_bind play_body.
apply: E_always; apply: always_impl (look_valid L lp lq qx) => -[p' lp'|_]; first exact: IHn.
rewrite play_bind !E_bind E_ret; rewrite (IHb (rcons c x) d.+1 0%N _ db (target_law _)) E_fmap.
by apply: eq_E => w; rewrite E_ret.
Qed.

Definition later d j d' (o : option (nat * nat)) : bool :=
  (d < d')%N || (d' == d) && (if o is Some (j', _) then j <= j' else true)%N.

Lemma once_body d j p q x b' s : uniq (sites b') -> (forall k, k \in sites b' -> key d (Some (j, k)) \notin s) ->
  once s (ask_body d j p q x b') /\ asks [seq key d (Some (j, k)) | k <- sites b'] (ask_body d j p q x b').
Proof.
elim: b' s => [|e|k e yes IHy no IHn] s //=; rewrite mem_cat cat_uniq => /andP[/norP[ky kn] /and3P[uy _ un]] out.
have part b2 : (forall s, uniq (sites b2) -> (forall k, k \in sites b2 -> key d (Some (j, k)) \notin s) ->
    once s (ask_body d j p q x b2) /\ asks [seq key d (Some (j, k)) | k <- sites b2] (ask_body d j p q x b2)) ->
    uniq (sites b2) -> k \notin sites b2 -> {subset sites b2 <= sites yes ++ sites no} ->
    once (key d (Some (j, k)) :: s) (ask_body d j p q x b2) /\
    asks [seq key d (Some (j, k)) | k <- k :: sites yes ++ sites no] (ask_body d j p q x b2).
  move=> IH u nk sub; case: (IH (key d (Some (j, k)) :: s) u) => [k' ik'|o a].
    rewrite inE negb_or out ?inE ?sub ?orbT // andbT; apply: contraNneq nk => /key_inj[_ [e2]]; by rewrite -e2.
  split=> //; apply: asks_sub a => u' /mapP[k' ik' ->]; apply: map_f; by rewrite inE sub // orbT.
have suby : {subset sites yes <= sites yes ++ sites no} by move=> u i; rewrite mem_cat i.
have subn : {subset sites no <= sites yes ++ sites no} by move=> u i; rewrite mem_cat i orbT.
have [oy ay] := part yes IHy uy ky suby; have [on an] := part no IHn un kn subn.
split; split=> [|n]; rewrite ?out ?inE ?eqxx //; by case: (toss _ n).
Qed.

Lemma later_next d j d' o : later d j.+1 d' o -> later d j d' o.
Proof. by case/orP=> [h|/andP[e h]]; rewrite /later ?h // e; case: o h => [[j' k] /ltnW ->|]; rewrite orbT. Qed.

Lemma later_below d j d' o : later d.+1 0 d' o -> later d j d' o.
Proof. by case/orP=> [/ltnW h|/andP[/eqP -> _]]; rewrite /later ?h ?ltnSn. Qed.

Lemma once_map A B (h : A -> B) (r : reads A) s : once s r -> once s (rbind r (fun a => Ret _ _ (h a))).
Proof. by elim: r s => //= k g IH s [n f]; split=> // b'; exact: IH. Qed.

Lemma once_walk t c d j p (s : seq K) : (forall d' o, later d j d' o -> key d' o \notin s) -> once s (ask_walk c d j t p).
Proof.
have [us _] := andP good; elim: t c d j p s => [|x q below IHb next IHn] c d j p s out /=.
  by split=> //; apply: out; rewrite /later eqxx orbT.
have [|ob ab] := @once_body d j p q x b s us; first by move=> k _; apply: out; rewrite /later eqxx leqnn orbT.
apply: once_bind ob ab _ => -[p'|]; [apply: IHn|apply/once_map/IHb] => d' o l; rewrite mem_cat negb_or.
  rewrite (out _ _ (later_next l)) andbT; apply/mapP => -[k _ /key_inj[e1 e2]].
  by move: l; rewrite e1 e2 /later !ltnn eqxx.
rewrite (out _ _ (later_below j l)) andbT; apply/mapP => -[k _ /key_inj[e1 e2]].
by move: l; rewrite e1 /later ltnNge leqnSn /= ltn_eqF.
Qed.

Section Path.
Variables (A : Type) (p : linear R V K N A) (dk : seq K).
Hypotheses (udk : uniq dk) (fp : fresh noise pick dk [::] p) (own : forall d o, key d o \notin dk).

(** Drafting, then verification: what a step commits of it, as a program that asks for noise. *)
Definition verification c : reads text :=
  rbind (drafts x0 pick p [::] (Leaf R V)) (fun o => ask_walk c 0%N 0%N o.1.1 (target c)).

Lemma verification_once c : once [::] (verification c).
Proof.
have [ad od] := once_drafts x0 [::] (Leaf R V) fp; apply: once_bind od ad _ => o.
by apply: once_walk => d' o' _; rewrite cats0.
Qed.

Lemma verification_Law c : Law target c (play noise (verification c)).
Proof.
have [ad od] := once_drafts x0 [::] (Leaf R V) fp.
move=> J hJ; rewrite play_bind E_bind -[RHS](linear_Law n0 x0 noise_prob target_law udk fp L hJ) E_bind.
have d0 := @drafts_drawn R K N noise noise_prob V x0 pick _ p dk [::] [::] (Leaf R V) fp (List.Forall_nil _) I.
rewrite (E_always (g := fun o => E (walk target (rule_of R V b) c o.1.1) (fun w => J (c ++ w)))); last first.
  apply: always_impl d0 => o dt; rewrite play_walk //; by rewrite /walk E_bind E_ret.
rewrite -(told_play n0 noise_prob udk ad od) E_fmap; apply: eq_E => w; by rewrite told_drafts.
Qed.

(** [rule-lossless]: path(M, v, drawn, N + K). *)
Theorem rule_lossless c ks : uniq ks -> asks ks (verification c) ->
  Law target c (fmap (fun w => told w (verification c)) (table n0 noise ks)).
Proof.
move=> uks aks J hJ; rewrite -(verification_Law hJ).
exact: (told_play n0 noise_prob uks aks (verification_once c)).
Qed.

End Path.
End Verified.
