(** The theorems of the certificate checker's rules, in the certificate's terms.

    A program asks for noise by keys ([reads]); with a table of all noise it is a function. [asks_once]: none is asked twice,
    nor one that was asked before; this is what the checker tests of draws with sets of labels, and then the table may be
    replaced by noise of its own for each question ([told_play]).

    [rule_lossless]: a rule that [accepts] of Accepts.v accepts, with noises of its own, commits on what a drafting program has
    grown with other noises a lawful path. [steps_own], [steps_drawn]: a loop [while not done] of which each iteration commits,
    of the version of the context that is current, what is own or drawn, keeps its invariant, and asks for no noise of an
    earlier iteration, is the specification. [accepted_steps], [accepted_own_steps] put both together for algorithms that draft,
    verify and commit. [reused_lossy]: it is needed that no noise is asked twice. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps Tokens Grow Linear Loops Lossy Accepts.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

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
Fixpoint asks A (mine : pred K) (r : reads A) : Prop :=
  match r with Ret _ => True | Ask k h => mine k /\ forall n, asks mine (h n) end.

Fixpoint asks_once A (seen : seq K) (r : reads A) : Prop :=
  match r with Ret _ => True | Ask k h => k \notin seen /\ forall n, asks_once (k :: seen) (h n) end.

Lemma told_bind A B (r : reads A) (g : A -> reads B) w : told w (rbind r g) = told w (g (told w r)).
Proof. by elim: r => //= k h IH; exact: IH. Qed.

Lemma play_bind A B (r : reads A) (g : A -> reads B) : play (rbind r g) ~ (a <- play r ;; play (g a)).
Proof.
move=> f; elim: r => [a|k h IH] /=; first by rewrite E_bind E_ret.
by rewrite !E_bind; apply: eq_E => n; rewrite IH E_bind.
Qed.

Lemma prob_play A (r : reads A) : prob (play r).
Proof. by elim: r => [a|k h IH] /=; [exact: prob_ret | apply: prob_bind => //; exact: always_true]. Qed.

Lemma asks_sub A (mine mine' : pred K) (r : reads A) : (forall k, mine k -> mine' k) -> asks mine r -> asks mine' r.
Proof. by move=> sub; elim: r => //= k h IH [/sub i f]; split=> // n; exact: IH. Qed.

Lemma asks_bind A B (mine : pred K) (r : reads A) (g : A -> reads B) :
  asks mine r -> (forall a, asks mine (g a)) -> asks mine (rbind r g).
Proof. by elim: r => //= k h IH [i f] ag; split=> // n; exact: IH. Qed.

Lemma once_seen A s s' (r : reads A) : {subset s' <= s} -> asks_once s r -> asks_once s' r.
Proof.
elim: r s s' => //= k h IH s s' sub [n f]; split=> [|b]; first by apply: contra n; exact: sub.
by apply: IH (f b) => j; rewrite !inE => /orP[->//|/sub ->]; rewrite orbT.
Qed.

Lemma once_bind A B (dk s : seq K) (r : reads A) (g : A -> reads B) :
  asks_once s r -> asks [mem dk] r -> (forall a, asks_once (dk ++ s) (g a)) -> asks_once s (rbind r g).
Proof.
elim: r s => [a|k h IH] s /=.
  by move=> _ _ og; apply: once_seen (og a) => j; rewrite mem_cat orbC => ->.
case=> n f [i ah] og; split=> // b; apply: IH => // a.
by apply: once_seen (og a) => j; rewrite !mem_cat inE => /orP[->//|/orP[/eqP ->|->]]; rewrite ?i ?orbT.
Qed.

Lemma once_map A B (h : A -> B) (r : reads A) s : asks_once s r -> asks_once s (rbind r (fun a => Ret (h a))).
Proof. by elim: r s => //= k g IH s [n f]; split=> // b; exact: IH. Qed.

(** All that it may give. *)
Fixpoint results A (P : A -> Prop) (r : reads A) : Prop :=
  match r with Ret a => P a | Ask _ h => forall n, results P (h n) end.

Lemma told_results A (P : A -> Prop) r w : results P r -> P (told w r).
Proof. by elim: r => //= k h IH f; exact: IH. Qed.

Lemma results_bind A B (P : B -> Prop) (r : reads A) (g : A -> reads B) :
  results (fun a => results P (g a)) r -> results P (rbind r g).
Proof. by elim: r => //= k h IH f n; exact: IH. Qed.

Lemma results_impl A (P Q : A -> Prop) r : (forall a, P a -> Q a) -> results P r -> results Q r.
Proof. by move=> h; elim: r => [a|k g IH] /=; [exact: h | move=> f n; exact: IH]. Qed.

Lemma results_true A (P : A -> Prop) r : (forall a, P a) -> results P r.
Proof. by move=> h; elim: r => //= k g IH n; exact: IH. Qed.

Lemma play_results A (P : A -> Prop) r : results P r -> always P (play r).
Proof.
by elim: r => [a|k h IH] /= f; [exact: always_ret | apply: always_bind; apply: always_true => n; exact: IH].
Qed.

(** What is asked on the way to each result. *)
Fixpoint leads A (P : seq K -> A -> Prop) (l : seq K) (r : reads A) : Prop :=
  match r with Ret a => P l a | Ask k h => forall n, leads P (k :: l) (h n) end.

Lemma leads_impl A (P Q : seq K -> A -> Prop) l r : (forall l a, P l a -> Q l a) -> leads P l r -> leads Q l r.
Proof. by move=> h; elim: r l => [a|k g IH] l /=; [exact: h | move=> f n; exact: IH]. Qed.

Lemma leads_results A (P : seq K -> A -> Prop) (Q : A -> Prop) l r : leads P l r -> results Q r ->
  leads (fun l a => P l a /\ Q a) l r.
Proof. by elim: r l => //= k g IH l f h n; exact: IH. Qed.

Lemma leads_some A (P : seq K -> A -> Prop) l r : leads P l r -> exists l' a, P l' a /\ {subset l <= l'}.
Proof.
elim: r l => [a|k g IH] l /=; first by move=> Pa; exists l, a; split=> // j.
by move=> /(_ n0) /IH[l' [a [Pa sub]]]; exists l', a; split=> // j jl; apply: sub; rewrite inE jl orbT.
Qed.

Lemma asks_leads A (mine : pred K) l (r : reads A) : asks mine r -> (forall k, k \in l -> mine k) ->
  leads (fun l' _ => forall k, k \in l' -> mine k) l r.
Proof.
elim: r l => //= k h IH l [ik f] lk n; apply: IH => // j; rewrite inE => /orP[/eqP -> //|]; exact: lk.
Qed.

Lemma once_leads A B (r : reads A) (g : A -> reads B) l seen : asks_once l r ->
  leads (fun l' a => (forall k, k \in l' -> k \notin seen) /\ asks_once (l' ++ seen) (g a)) l r ->
  asks_once (l ++ seen) (rbind r g).
Proof.
elim: r l => [a|k h IH] l /=; first by move=> _ [].
case=> kl oh f; split=> [|n]; last by rewrite -cat_cons; apply: IH.
have [l' [a [[out _] sub]]] := leads_some (f n0); rewrite mem_cat negb_or kl out //.
by apply: sub; rewrite inE eqxx.
Qed.

Lemma told_unseen A (r : reads A) s w w' : asks_once s r -> (forall k, k \notin s -> w k = w' k) -> told w r = told w' r.
Proof.
elim: r s => //= k h IH s [n f] e; rewrite -e //; apply: (IH _ (k :: s)) => // j; rewrite inE => /norP[_]; exact: e.
Qed.

(** A program that asks no noise twice does with one table what it would do with noise of its own for each question. *)
Theorem told_play A (r : reads A) (ks : seq K) : uniq ks -> asks [mem ks] r -> asks_once [::] r ->
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

Lemma once_drafts A (p : linear R V K N A) ks s l t : fresh noise pick ks s p ->
  asks [mem ks] (drafts p l t) /\ asks_once s (drafts p l t).
Proof.
elim: p s l t => [a|k h IH|k q h IH|i place h IH|i h IH] s l t //=.
- by case=> i n f; split; split=> // b; case: (IH b _ l t (f b)).
- by case=> i n _ _ f; split; split=> // b; case: (IH _ (rcons l (pick q b, q)) t f).
- by move=> f; exact: IH.
- by move=> f; exact: IH.
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

(** The noises of a rule go by the depth of the node and the child (none for what is drawn after the children), and by their
    site. *)
Variable key : nat -> option (nat * nat) -> K.
Hypothesis key_inj : forall d o d' o', key d o = key d' o' -> d = d' /\ o = o'.
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

(** A noise chooses with exactly the probabilities of the coin, or of the row, that it is read for. *)
Fixpoint exact_body d j (p q : row) x (b : body) : Prop :=
  if b is Toss s e yes no then
    [/\ fmap (toss (sem p q x e x)) (noise (key d (Some (j, s)))) ~ coin (sem p q x e x), exact_body d j p q x yes
      & exact_body d j p q x no]
  else True.

Fixpoint exact_walk c d j (t : tree R V) (p : row) : Prop :=
  if t is Node x q below next then
    exact_body d j p q x b /\
    results (fun o => if o is Some p' then exact_walk c d j.+1 next p'
                      else exact_walk (rcons c x) d.+1 0%N below (target (rcons c x))) (ask_body d j p q x b)
  else fmap (pick p) (noise (key d None)) ~ draw p.

Lemma play_body d j p q x b' : exact_body d j p q x b' -> play noise (ask_body d j p q x b') ~ perform p q x b'.
Proof.
elim: b' => [|e|s e yes IHy no IHn] //= [toss_e ey en] f; rewrite !E_bind -toss_e E_fmap.
by apply: eq_E => n; case: (toss _ n); rewrite ?IHy ?IHn.
Qed.

Lemma play_walk t c d j p : exact_walk c d j t p ->
  play noise (ask_walk c d j t p) ~ descend target c t (p : carried (rule_of R V b)).
Proof.
elim: t c d j p => [|x q below IHb next IHn] c d j p /=; first by move=> e f; rewrite !E_bind -e E_fmap.
case=> eb ew f; rewrite play_bind !E_bind -(play_body eb).
apply: E_always; apply: always_impl (play_results noise ew) => -[p'|] e; first exact: IHn.
rewrite play_bind !E_bind E_ret (IHb _ _ _ _ e) E_fmap; by apply: eq_E => w; rewrite E_ret.
Qed.

Hypothesis good : accepts b.
Let L := accepted_lossless R V good.

Definition later d j d' (o : option (nat * nat)) : bool :=
  (d < d')%N || (d' == d) && (if o is Some (j', _) then j <= j' else true)%N.

Lemma once_body d j p q x b' s : uniq (sites b') -> (forall k, k \in sites b' -> key d (Some (j, k)) \notin s) ->
  asks_once s (ask_body d j p q x b') /\ asks [mem [seq key d (Some (j, k)) | k <- sites b']] (ask_body d j p q x b').
Proof.
elim: b' s => [|e|k e yes IHy no IHn] s //=; rewrite mem_cat cat_uniq => /andP[/norP[ky kn] /and3P[uy _ un]] out.
have part b2 : (forall s, uniq (sites b2) -> (forall k, k \in sites b2 -> key d (Some (j, k)) \notin s) ->
    asks_once s (ask_body d j p q x b2) /\ asks [mem [seq key d (Some (j, k)) | k <- sites b2]] (ask_body d j p q x b2)) ->
    uniq (sites b2) -> k \notin sites b2 -> {subset sites b2 <= sites yes ++ sites no} ->
    asks_once (key d (Some (j, k)) :: s) (ask_body d j p q x b2) /\
    asks [mem [seq key d (Some (j, k)) | k <- k :: sites yes ++ sites no]] (ask_body d j p q x b2).
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

Lemma once_walk t c d j p (s : seq K) : (forall d' o, later d j d' o -> key d' o \notin s) -> asks_once s (ask_walk c d j t p).
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

Lemma asks_walk (mine : pred K) t c d j p : (forall d o, mine (key d o)) -> asks mine (ask_walk c d j t p).
Proof.
move=> all; elim: t c d j p => [|x q below IHb next IHn] c d j p /=; first by split.
apply: asks_bind => [|[p'|]]; [|exact: IHn|exact: asks_bind (IHb _ _ _ _) _].
by elim: b {IHb IHn} => //= k e yes IHy no IHn'; split=> // n; case: (toss _ n).
Qed.

Lemma walk_some t c d j p : results (fun w => 0 < size w)%N (ask_walk c d j t p).
Proof.
elim: t c d j p => [|x q below IHb next IHn] c d j p //=.
apply: results_bind; apply: results_true => -[p'|]; first exact: IHn.
by apply: results_bind; apply: results_true => w.
Qed.

Section Path.
Variables (A : Type) (p : linear R V K N A) (dk : seq K).
Hypotheses (udk : uniq dk) (fp : fresh noise pick dk [::] p) (own : forall d o, key d o \notin dk).

(** Drafting, then verification: what a step commits of it, as a program that asks for noise. *)
Definition verification c : reads text :=
  rbind (drafts x0 pick p [::] (Leaf R V)) (fun o => ask_walk c 0%N 0%N o.1.1 (target c)).

Lemma verification_once c : asks_once [::] (verification c).
Proof.
have [ad od] := once_drafts x0 [::] (Leaf R V) fp; apply: once_bind od ad _ => o.
by apply: once_walk => d' o' _; rewrite cats0.
Qed.

(** The noises of the rule are exact on each tree that may be drafted. *)
Definition exact_on c := results (fun o => exact_walk c 0%N 0%N o.1.1 (target c)) (drafts x0 pick p [::] (Leaf R V)).

Lemma verification_Law c : exact_on c -> Law target c (play noise (verification c)).
Proof.
have [ad od] := once_drafts x0 [::] (Leaf R V) fp; move=> ex J hJ.
rewrite play_bind E_bind -[RHS](linear_Law n0 x0 noise_prob target_law udk fp L hJ) E_bind.
rewrite (E_always (g := fun o => E (walk target (rule_of R V b) c o.1.1) (fun w => J (c ++ w)))); last first.
  by apply: always_impl (play_results noise ex) => o e; rewrite play_walk // /walk E_bind E_ret.
rewrite -(told_play n0 noise_prob udk ad od) E_fmap; apply: eq_E => w; by rewrite told_drafts.
Qed.

Lemma verification_asks (mine : pred K) c : (forall k, k \in dk -> mine k) -> (forall d o, mine (key d o)) ->
  asks mine (verification c).
Proof.
move=> sub all; have [ad _] := once_drafts x0 [::] (Leaf R V) fp.
by apply: asks_bind (asks_sub sub ad) _ => o; exact: asks_walk.
Qed.

Lemma verification_some c : results (fun w => 0 < size w)%N (verification c).
Proof. by apply: results_bind; apply: results_true => o; exact: walk_some. Qed.

(** [rule-lossless]: path(M, v, drawn, N + K). *)
Theorem rule_lossless c (ks : seq K) : exact_on c -> uniq ks -> asks [mem ks] (verification c) ->
  Law target c (fmap (fun w => told w (verification c)) (table n0 noise ks)).
Proof.
move=> ex uks aks J hJ; rewrite -(verification_Law ex hJ).
exact: (told_play n0 noise_prob uks aks (verification_once c)).
Qed.

End Path.
End Verified.

(** ** The induction over steps *)
Section Loop.
Variables (R : realFieldType) (V : finType) (K : eqType) (N : Type) (n0 : N) (S : Type).
Notation M := (M R).
Notation text := (seq V).
Notation reads := (reads K N).
Variable noise : K -> M N.
Hypothesis noise_prob : forall k, prob (noise k).
Variables (target : text -> row R V) (ended : text -> bool).
Hypothesis target_law : forall c, law (target c).

(** An iteration, as the certificate reads it. [Look]: a noise decides something, from here on it is in the control. [Commit v
    P]: what P makes of version v of the context; the versions of an iteration are numbered from its head. [Done]: the values at
    the end. *)
Inductive iteration :=
| Done (s : S)
| Look (k : K) (h : N -> iteration)
| Commit (v : nat) (path : text -> reads text) (h : text -> iteration).

(** What it does, given all versions of the context. *)
Fixpoint body_of (p : iteration) (cs : seq text) : reads (text * S) :=
  match p with
  | Done s => Ret _ _ ([::], s)
  | Look k h => Ask k (fun n => body_of (h n) cs)
  | Commit v path h =>
    rbind (path (nth [::] cs v)) (fun w =>
      rbind (body_of (h w) (rcons cs (last [::] cs ++ w))) (fun o => Ret _ _ (w ++ o.1, o.2)))
  end.

(** What the checker tests of it: what is committed is of the version that is current there, and [good]; every way to the end
    commits; at the end the invariant holds again. *)
Section Shown.
Variables (good : text -> reads text -> Prop) (I : text -> S -> Prop).

Fixpoint shown (p : iteration) v c (made : bool) : Prop :=
  match p with
  | Done s => made /\ I c s
  | Look k h => forall n, shown (h n) v c made
  | Commit v' path h =>
    [/\ v' = v, good c (path c) & results (fun w => (0 < size w)%N /\ shown (h w) v.+1 (c ++ w) true) (path c)]
  end.

Lemma shown_results p v c cs made : shown p v c made -> size cs = v.+1 -> last [::] cs = c ->
  results (fun o => (made || (0 < size o.1)%N) /\ I (c ++ o.1) o.2) (body_of p cs).
Proof.
elim: p v c cs made => [s|k h IH|v' path h IH] v c cs made /=.
- by case=> -> Is _ _; rewrite cats0.
- by move=> sh sz lc n; exact: IH (sh n) sz lc.
- case=> -> _ sh sz lc; have nc : nth [::] cs v = c by rewrite -lc (last_nth [::]) sz -nth_behead; case: (cs) sz.
  rewrite nc lc; apply: results_bind; apply: results_impl sh => w [w0 sh]; apply: results_bind.
  have := IH w _ _ (rcons cs (c ++ w)) _ sh; rewrite size_rcons sz last_rcons => /(_ erefl erefl).
  by apply: results_impl => o [_ Io] /=; rewrite size_cat addn_gt0 w0 orbT catA.
Qed.
End Shown.

Variables (step : nat -> text -> S -> iteration) (I : nat -> text -> S -> Prop).
Definition once_through i c s := body_of (step i c s) [:: c].

(** The first n tokens of [while not done], with iterations that are numbered from i on. *)
Fixpoint whole k n i c s : reads text :=
  if k is k'.+1 then
    if (n == 0)%N || ended c then Ret _ _ [::]
    else rbind (once_through i c s) (fun o =>
      let w := cut ended c o.1 in
      if (n <= size w)%N then Ret _ _ (take n w)
      else rbind (whole k' (n - size w)%N i.+1 (c ++ w) o.2) (fun u => Ret _ _ (w ++ u)))
  else Ret _ _ [::].

(** *** Mode own: with a table of all noise, the output stream's among it *)
Section OwnMode.
Variables (w : K -> N) (own : text -> V).
Definition good_own c (r : reads text) : Prop := owned own c (told w r).

Lemma told_own J p v c cs made : shown good_own J p v c made -> size cs = v.+1 -> last [::] cs = c ->
  owned own c (told w (body_of p cs)).1.
Proof.
elim: p v c cs made => [s|k h IH|v' path h IH] v c cs made //=.
- by move=> sh; apply: IH.
- case=> -> ow /(told_results w)[_ sh] sz lc.
  have nc : nth [::] cs v = c by rewrite -lc (last_nth [::]) sz -nth_behead; case: (cs) sz.
  have := IH _ _ _ (rcons cs (c ++ told w (path c))) _ sh; rewrite size_rcons sz last_rcons => /(_ erefl erefl) ow'.
  by rewrite told_bind nc told_bind lc owned_cat [owned _ _ (told _ _)]ow.
Qed.

(** The premises: every iteration, from where the invariant holds and the request is not done, is as it should be. *)
Theorem steps_own : (forall i c s, I i c s -> ~~ ended c -> shown good_own (I i.+1) (step i c s) 0 c false) ->
  forall n i c s, I i c s -> told w (whole n n i c s) = own_text own ended n c.
Proof.
move=> sh n i c s Is.
suff h k : forall n i c s, (n <= k)%N -> I i c s \/ ended c -> told w (whole k n i c s) = own_text own ended n c.
  by apply: h => //; left.
elim: k {n i c s Is} => [|k IH] n i c s nk ok /=; first by case: n nk.
case: n nk => [|n] nk //=; have [e //|go] := boolP (ended c); case: ok => [{}Is|e]; last by rewrite e in go.
have ow := told_own (sh i c s Is go) (erefl : size [:: c] = 1%N) erefl.
have [s0 Io] := told_results w (shown_results (sh i c s Is go) (erefl : size [:: c] = 1%N) erefl).
rewrite told_bind -/(once_through i c s) in ow s0 Io *; move: (told w (once_through i c s)) ow s0 Io => o ow s0 Io.
have := owned_first n.+1 go ow; rewrite /= (negPf go) => ->.
have [full|less] := leqP n.+1 _; rewrite //= told_bind /= IH //.
  by case: (o.1) s0 => //= x u _; rewrite (negPf go) subSS (leq_trans (leq_subr _ _)).
by case: (cut_stops ended c o.1) => [->|]; [left | right].
Qed.
End OwnMode.

(** *** Mode drawn: the noises of what is committed were not asked before, so nothing that decides tells of them *)
Section DrawnMode.
Definition good_drawn c (r : reads text) : Prop := Law target c (play noise r).

Lemma play_drawn F p v c cs made : shown good_drawn F p v c made -> size cs = v.+1 -> last [::] cs = c ->
  Law target c (fmap fst (play noise (body_of p cs))).
Proof.
elim: p v c cs made => [s|k h IH|v' path h IH] v c cs made /=.
- by move=> _ _ _ J hJ; rewrite E_fmap E_ret cats0.
- move=> sh sz lc J hJ; rewrite E_fmap E_bind -[RHS](E_const _ (noise_prob k).2); apply: eq_E => n.
  by have := IH n _ _ _ _ (sh n) sz lc J hJ; rewrite E_fmap.
- case=> -> L /(play_results noise) sh sz lc J hJ.
  have nc : nth [::] cs v = c by rewrite -lc (last_nth [::]) sz -nth_behead; case: (cs) sz.
  rewrite nc lc E_fmap play_bind E_bind -[RHS](L J hJ); apply: E_always; apply: always_impl sh => w [_ sh].
  have := IH w _ _ (rcons cs (c ++ w)) _ sh; rewrite size_rcons sz last_rcons => /(_ erefl erefl) L'.
  by rewrite -(L' J (harmonic_cat w hJ)) E_fmap play_bind E_bind; apply: eq_E => o; rewrite E_ret /= catA.
Qed.

Definition path_of c (x : nat * S) : M (text * (nat * S)) :=
  fmap (fun o => (o.1, (x.1.+1, o.2))) (play noise (once_through x.1 c x.2)).

Lemma play_whole k n i c s : play noise (whole k n i c s) ~ run ended (commit ended path_of) k n c (i, s).
Proof.
elim: k n i c s => [|k IH] n i c s f //=; case: ifP => // _.
rewrite play_bind !E_bind; apply: eq_E => o; rewrite !E_ret /= /first; case: ifP => // _.
by rewrite play_bind E_bind IH E_fmap; apply: eq_E => u; rewrite E_ret.
Qed.

(** Which noises are of earlier iterations, or of earlier positions: those of an iteration are not, and are in the next. *)
Variable past : nat -> text -> K -> bool.

Record aged : Prop := Aged {
  aged_once : forall i c s, I i c s -> ~~ ended c -> asks_once [::] (once_through i c s);
  aged_now : forall i c s, I i c s -> ~~ ended c ->
    leads (fun l o => forall k, k \in l -> ~~ past i c k && past i.+1 (c ++ cut ended c o.1) k) [::] (once_through i c s);
  aged_later : forall i c w k, past i c k -> past i.+1 (c ++ w) k
}.

(** The premises: every iteration, from where the invariant holds and the request is not done, is as it should be. *)
Hypothesis sh : forall i c s, I i c s -> ~~ ended c -> shown good_drawn (I i.+1) (step i c s) 0 c false.

Let through i c s (Is : I i c s) (go : ~~ ended c) := shown_results (sh Is go) (erefl : size [:: c] = 1%N) erefl.

Lemma once_whole : aged -> forall k n i c s seen, I i c s \/ ended c -> (forall j, j \in seen -> past i c j) ->
  asks_once seen (whole k n i c s).
Proof.
move=> ag; elim=> [|k IH] n i c s seen ok old //=; case: ifP => // /norP[_ go]; rewrite -[seen]cat0s.
case: ok => [Is|e]; last by rewrite e in go.
apply: (once_leads n0 (aged_once ag Is go)).
apply: (leads_impl _ (leads_results (aged_now ag Is go) (through Is go))) => l o [now [_ Io]]; split.
  by move=> j /now /andP[nj _]; apply: contra nj; exact: old.
case: ifP => // _; apply: once_map; apply: IH => [|j].
  by case: (cut_stops ended c o.1) => [->|]; [left | right].
by rewrite mem_cat => /orP[/now /andP[]//|/old]; exact: aged_later.
Qed.

Theorem steps_drawn : aged -> forall (ks : seq K) n i c s, uniq ks -> asks [mem ks] (whole n n i c s) -> I i c s ->
  fmap (fun w => told w (whole n n i c s)) (table n0 noise ks) ~ spec target ended n c.
Proof.
move=> ag ks n i c s uks aks Is f.
rewrite (told_play n0 noise_prob uks aks) ?play_whole; last by apply: once_whole => //; left.
apply: (run_drawn (I := fun c x => I x.1 c x.2) target_law) => [c1 [j s1] Is1 go||//].
  by apply: always_fmap; apply: always_impl (play_results noise (through Is1 go)) => o [].
split=> c1 [j s1] [Is1 go].
- by apply: prob_bind; [exact: prob_play | apply: always_true => o; exact: prob_ret].
- move=> J hJ; have := play_drawn (sh Is1 go) (erefl : size [:: c1] = 1%N) erefl hJ.
  by rewrite !E_fmap => <-.
- by apply: always_fmap; apply: always_impl (play_results noise (through Is1 go)) => o [].
Qed.
End DrawnMode.
End Loop.

(** ** What a step may commit *)
Section Facts.
Variables (R : realFieldType) (V : finType) (K : eqType) (N : Type).
Notation text := (seq V).
Variables (noise : K -> M R N) (pick : row R V -> N -> V) (target : text -> row R V).

Definition ask_token k c : reads K N text := Ask k (fun n => Ret _ _ [:: pick (target c) n]).

(** token(M, v, drawn, {k}) *)
Lemma token_drawn k c : fmap (pick (target c)) (noise k) ~ draw (target c) -> good_drawn noise target c (ask_token k c).
Proof.
by move=> e J hJ; rewrite /= E_bind -(Law_draw hJ) E_fmap -e E_fmap; apply: eq_E => n; rewrite E_ret.
Qed.

(** The output stream is keyed by the position; with a table of noise the target's own draw after a text is a token. *)
Variables (out : nat -> K) (w : K -> N).
Definition own_of (c : text) : V := pick (target c) (w (out (size c))).

(** token(M, v, own, {}) *)
Lemma token_own c : good_own w own_of c (ask_token (out (size c)) c).
Proof. by rewrite /good_own /= eqxx. Qed.

(** path(M, v, own, {}): what a rule by cases accepts and emits on a tree of any drafts. *)
Lemma path_own (own : text -> V) guess chance evidence states b n c (r : reads K N text) (t : tree R V) :
  accepts_cases states b -> told w r = steered own guess chance evidence b n.+1 c t -> good_own w own c r.
Proof. by move=> ok e; have := rule_matching own guess chance evidence ok n.+1 c t; rewrite /good_own e => /andP[]. Qed.
End Facts.


(** ** Algorithms that draft, verify by an accepted rule and commit, from one table of noise *)
Section Certified.
Variables (R : realFieldType) (V : finType) (K : eqType) (N : Type) (n0 : N) (x0 : V) (S A : Type).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Variable noise : K -> M N.
Hypothesis noise_prob : forall k, prob (noise k).
Variables (pick : row -> N -> V) (toss : R -> N -> bool) (target : text -> row) (ended : text -> bool).
Hypothesis target_law : forall c, law (target c).

(** Noises are keyed by the iteration; those of the drafts are others than those of the rule. *)
Variables (lap : K -> nat) (drafted : nat -> seq K) (key : nat -> nat -> option (nat * nat) -> K).
Hypothesis key_inj : forall i d o d' o', key i d o = key i d' o' -> d = d' /\ o = o'.
Hypotheses (key_lap : forall i d o, lap (key i d o) = i) (drafted_lap : forall i k, k \in drafted i -> lap k = i).
Hypotheses (drafted_uniq : forall i, uniq (drafted i)) (apart : forall i d o, key i d o \notin drafted i).

Variables (program : nat -> text -> S -> linear R V K N A) (next : nat -> text -> S -> text -> S) (b : body).
Let path i c s := verification x0 pick toss (key i) target b (program i c s).

Definition one_step i c s : iteration V K N S := Commit 0 (path i c s) (fun w => Done _ _ _ (next i c s w)).

(** The invariant: from where it holds, draws have the distributions that they state, and it holds after the commit. *)
Variable I : nat -> text -> S -> Prop.
Hypothesis drafts_fresh : forall i c s, I i c s -> fresh noise pick (drafted i) [::] (program i c s).
Hypothesis rule_exact : forall i c s, I i c s -> exact_on x0 noise pick toss (key i) target b (program i c s) c.
Hypothesis kept : forall i c s, I i c s -> results (fun w => I i.+1 (c ++ w) (next i c s w)) (path i c s c).

Theorem accepted_steps : accepts b -> forall (ks : seq K) n i c s, uniq ks -> asks [mem ks] (whole ended one_step n n i c s) ->
  I i c s -> fmap (fun w => told w (whole ended one_step n n i c s)) (table n0 noise ks) ~ spec target ended n c.
Proof.
move=> good ks n i c s uks aks Is.
apply: (steps_drawn n0 noise_prob target_law (I := I) (past := fun i _ k => (lap k < i)%N)) => // [j c1 s1 I1 _|].
  split=> //=; last first.
    have := verification_some x0 pick toss (key j) target b (program j c1 s1) c1; move: (kept I1); rewrite -/(path j c1 s1 c1).
    by elim: (path j c1 s1 c1) => [w /= ? ?|k h IH f g u] //=; apply: IH.
  exact (@verification_Law R V K N n0 x0 noise noise_prob pick toss (key j) target b target_law good A _ _
    (@drafted_uniq j) (drafts_fresh I1) c1 (rule_exact I1)).
split=> [j c1 s1 I1 _|j c1 s1 I1 _|j _ _ k lk]; last exact: ltnW.
- apply: (once_map (fun w => (w ++ [::], next j c1 s1 w))).
  exact (@verification_once R V K N x0 noise pick toss (key j) (@key_inj j) target b good A _ _
    (drafts_fresh I1) (@apart j) c1).
- have asked : asks [pred k | lap k == j] (once_through one_step j c1 s1).
    apply: asks_bind => [|w //]; apply: (verification_asks x0 toss target b (drafts_fresh I1)) => [k /drafted_lap e|d o] /=.
      by rewrite e.
    by rewrite key_lap.
  apply: (leads_impl _ (asks_leads (l := [::]) asked _)) => // l o all k /all /eqP ->.
  by rewrite ltnn ltnSn.
Qed.
End Certified.

(** The premises can hold: there are two tokens, target and drafter give one half to each, and an iteration verifies one draft
    by [rejection]. *)
Section Premises.
Variables (R : realFieldType) (ended : seq bool -> bool).
Notation coins := (halves R true false).
Let keys : eqType := [eqType of (nat * option (nat * option (nat * nat)))%type].
Let key i d o : keys := (i, Some (d, o)).
Let program (i : nat) (c : seq bool) (s : unit) : linear R [finType of bool] keys bool unit :=
  Sample ((i, None) : keys) coins (Put 0 [::] (fun=> End _ _ _ _ tt)).
Let toss (r : R) (n : bool) := 1 <= r.
Let loop_ := whole ended (one_step true (fun=> id) toss (fun=> coins) key program (fun _ _ _ _ => tt) of_rejection).

Lemma coins_run (ks : seq keys) n c : uniq ks -> asks [mem ks] (loop_ n n 0%N c tt) ->
  fmap (fun w => told w (loop_ n n 0%N c tt)) (table true (fun=> draw coins) ks) ~ spec (fun=> coins) ended n c.
Proof.
have lc := halves_law R true false; have half (y : bool) : coins y / coins y = 1.
  by rewrite /halves /onehot; case: y; rewrite /= ?addr0 ?add0r divff // mul1r invr_eq0 pnatr_eq0.
have same_draw : fmap id (draw coins) ~ draw coins by move=> f; rewrite E_fmap.
move=> uks aks; apply: (@accepted_steps R [finType of bool] keys bool true true unit unit (fun=> draw coins)
  (fun=> prob_draw lc) (fun=> id) toss (fun=> coins) ended (fun=> lc) fst (fun i => [:: (i, None)]) key _ _ _ _ _ program
  (fun _ _ _ _ => tt) of_rejection (fun _ _ _ => True)) => //.
- by move=> i d o d' o' [-> ->].
- by move=> i k; rewrite inE => /eqP ->.
- by move=> i d o; rewrite inE; apply/eqP => -[].
- by move=> i c1 s _; split=> //; rewrite ?inE ?eqxx.
- move=> i c1 s _ m /=; rewrite /exact_on /=; split.
    split=> // f; rewrite E_fmap E_coin half clip_id ?ler01 ?lexx // subrr mul0r addr0 mul1r E_draw.
    by rewrite (eq_dot _ (g := fun=> f true)) ?dot_const // => y; rewrite /toss lexx.
  by move=> n'; rewrite /toss half lexx.
- by move=> i c1 s _; apply: results_true.
Qed.
End Premises.

(** The same of rules by cases, in mode own: the trees may be drafted in any way, also by what the output stream says. *)
Section CertifiedOwn.
Variables (R : realFieldType) (V : finType) (K : eqType) (N S : Type).
Notation text := (seq V).
Variables (ended : text -> bool) (w : K -> N) (own : text -> V).
Variables (drafting : nat -> text -> S -> reads K N (tree R V)) (next : nat -> text -> S -> text -> S).
Variables (guess : text -> nat -> seq (datum V) -> V) (chance : text -> nat -> seq (datum V) -> bool) (evidence : text -> bool).
Variables (states : seq (seq (bool * seq fact))) (b : block) (depth : nat).

Definition one_own_step i c s : iteration V K N S :=
  Commit 0 (fun c' => rbind (drafting i c s) (fun t => Ret _ _ (steered own guess chance evidence b depth.+1 c' t)))
    (fun w => Done _ _ _ (next i c s w)).

Theorem accepted_own_steps : accepts_cases states b -> forall n i c s,
  told w (whole ended one_own_step n n i c s) = own_text own ended n c.
Proof.
move=> ok n i c s; apply: (steps_own (I := fun _ _ _ => True)) => // j c1 s1 _ _.
have own_path (t : tree R V) := rule_matching own guess chance evidence ok depth.+1 c1 t; split=> //=.
  by rewrite /good_own told_bind; have /andP[] := own_path (told w (drafting j c1 s1)).
by apply: results_bind; apply: results_true => t; have /andP[] := own_path t.
Qed.
End CertifiedOwn.

(** ** What the checker refuses, and has to *)
Section Reused.
Variables (R : realFieldType) (V : finType) (a b : V).
Hypothesis ab : a != b.
Notation halves := (halves R a b).

(** A draw that is committed twice: its noise is asked twice, and the path is not lawful, though each of both draws is. *)
Definition twice : reads [eqType of unit] V (seq V) := Ask tt (fun x => Ask tt (fun y => Ret _ _ [:: x; y])).

Theorem reused_lossy : ~ asks_once [::] twice /\
  ~ Law (fun=> halves) [::] (fmap (fun w => told w twice) (table a (fun=> draw halves) [:: tt])).
Proof.
split=> [[_ /(_ a)[]]|L]; first by rewrite inE eqxx.
have := L _ (starts_twice_harmonic R ab); rewrite E_fmap /= E_bind E_draw /=.
under eq_dot do rewrite E_bind E_ret E_ret /upd eqxx /=.
rewrite dot_halves /onehot eqxx (eq_sym b a) (negPf ab) mulr1 mulr0 addr0 mul1r => h.
have two : 2%:R != 0 :> R by rewrite pnatr_eq0.
by move/eqP: h; rewrite -[X in X == _]mul1r (inj_eq (mulIf (invr_neq0 two))) eq_sym (negPf (half_one R)).
Qed.
End Reused.

(** An iteration that commits a second time what was made of the version before, and one that commits nothing: what the checker
    asks of iterations is true of neither. The first would not commit own tokens ([stale_not_owned]), and the second would not
    end. *)
Section Unshown.
Variables (V : finType) (K : eqType) (N : Type) (n0 : N) (S : Type) (good : seq V -> reads K N (seq V) -> Prop).
Variables (I : seq V -> S -> Prop) (path : seq V -> reads K N (seq V)) (c : seq V) (s : S).

Lemma stale_refused : ~ shown good I (Commit 0 path (fun=> Commit 0 path (fun=> Done V K N s))) 0 c false.
Proof. by case=> _ _ /(told_results (fun=> n0))[_ []]. Qed.

Lemma idle_refused : ~ shown good I (Done V K N s) 0 c false.
Proof. by case. Qed.
End Unshown.
