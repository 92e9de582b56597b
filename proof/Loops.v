(** Facts over branches, loops and versions of the context (T0).

    A program is made of pieces that may commit. What is known at a place is a condition on the context that is current there and
    on the values of the variables: after a commit the context is another one, and what was known of the earlier one says nothing of
    it. [holds I p J]: if I is known before p, then p commits what the claim demands, and J is known after it.

    [holds_times], [holds_loop]: what is known before a loop and kept by its body is known after it, and all that it commits is as
    the claim demands. [run_own], [run_drawn], [run_inside]: a loop [while not done] whose body keeps what is known at its head, and
    commits at least one token, is right as a whole, in each of the three modes of a claim. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Rules Walk Steps Tokens.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Loops.
Variables (R : realFieldType) (V : finType) (S : Type).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).

(** A piece of a program: from the context and the values of the variables to what it commits and the values after it. *)
Definition piece := text -> S -> M (text * S).

(** An op that commits nothing; one piece after the other; a branch; [repeat n]; [while] with a bound. The second piece of two stands
    on another context than the first: a commit begins a new version of it. *)
Definition silent (op : text -> S -> M S) : piece := fun c s => s' <- op c s ;; ret ([::], s').
Definition nothing : piece := silent (fun _ s => ret s).
Definition before (a b : piece) : piece :=
  fun c s => o <- a c s ;; o' <- b (c ++ o.1) o.2 ;; ret (o.1 ++ o'.1, o'.2).
Definition branch (test : text -> S -> bool) (a b : piece) : piece := fun c s => if test c s then a c s else b c s.
Fixpoint repeat n (body : piece) : piece := if n is n'.+1 then before body (repeat n' body) else nothing.
Definition times (n : text -> S -> nat) (body : piece) : piece := fun c s => repeat (n c s) body c s.
Fixpoint loop n (test : text -> S -> bool) (body : piece) : piece :=
  if n is n'.+1 then branch test (before body (loop n' test body)) nothing else nothing.

(** What is known at a place of the program: a condition on the context that is current there, and on the values. *)
Definition known := text -> S -> Prop.

(** What a claim demands of a piece that starts at c, such that pieces may follow each other. *)
Record mode (good : text -> M (text * S) -> Prop) : Prop := Mode {
  mode_silent : forall c d, prob d -> good c (s <- d ;; ret ([::], s));
  mode_before : forall c d (P : text * S -> Prop) W, prob d -> always P d -> (forall o, P o -> prob (W o)) ->
    good c d -> (forall o, P o -> good (c ++ o.1) (W o)) -> good c (o <- d ;; o' <- W o ;; ret (o.1 ++ o'.1, o'.2))
}.

Variable good : text -> M (text * S) -> Prop.
Hypothesis m : mode good.

(** [holds I p J]: if I is known before p, then p commits what the claim demands, and J is known after it, of the context there. *)
Record holds (I : known) (p : piece) (J : known) : Prop := Holds {
  holds_prob : forall c s, I c s -> prob (p c s);
  holds_good : forall c s, I c s -> good c (p c s);
  holds_after : forall c s, I c s -> always (fun o => J (c ++ o.1) o.2) (p c s)
}.

Lemma holds_weaken (I I' J J' : known) p :
  (forall c s, I' c s -> I c s) -> (forall c s, J c s -> J' c s) -> holds I p J -> holds I' p J'.
Proof.
move=> i j [pr g a]; split=> c s /i Ic; [exact: pr | exact: g |].
by apply: always_impl (a c s Ic) => o; exact: j.
Qed.

Lemma holds_silent (I J : known) op :
  (forall c s, I c s -> prob (op c s) /\ always (J c) (op c s)) -> holds I (silent op) J.
Proof.
move=> h; split=> c s /h[pr a]; [|exact: (mode_silent m)|].
- by apply: prob_bind => //; apply: always_true => s'; exact: prob_ret.
- by apply: always_bind; apply: always_impl a => s' Js; apply: always_ret; rewrite /= cats0.
Qed.

Lemma holds_nothing (I : known) : holds I nothing I.
Proof. by apply: holds_silent => c s Ic; split; [exact: prob_ret | exact: always_ret]. Qed.

Lemma holds_before (I K J : known) a b : holds I a K -> holds K b J -> holds I (before a b) J.
Proof.
move=> ha hb; split=> c s Ic.
- apply: prob_bind; first exact: holds_prob ha c s Ic.
  apply: always_impl (holds_after ha Ic) => o Ko; apply: prob_bind; first exact: holds_prob hb _ _ Ko.
  by apply: always_true => o'; exact: prob_ret.
- apply: (mode_before m (holds_prob ha Ic) (holds_after ha Ic)); [|exact: holds_good ha c s Ic|] => o Ko.
    exact: holds_prob hb _ _ Ko.
  exact: holds_good hb _ _ Ko.
- apply: always_bind; apply: always_impl (holds_after ha Ic) => o Ko.
  apply: always_bind; apply: always_impl (holds_after hb Ko) => o' Jo.
  by apply: always_ret; rewrite /= catA.
Qed.

Lemma holds_branch (I J : known) (test : text -> S -> bool) a b :
  holds (fun c s => I c s /\ test c s) a J -> holds (fun c s => I c s /\ ~~ test c s) b J -> holds I (branch test a b) J.
Proof.
move=> ha hb; split=> c s Ic; rewrite /branch; case: ifP => [t|/negbT t].
all: by [apply: holds_prob ha _ _ _ | apply: holds_prob hb _ _ _ | apply: holds_good ha _ _ _ | apply: holds_good hb _ _ _
  | apply: (holds_after ha) | apply: (holds_after hb)].
Qed.

(** T0: what is known before a loop and kept by its body is known after it, however often it runs. *)
Lemma holds_repeat (I : known) body n : holds I body I -> holds I (repeat n body) I.
Proof. by move=> h; elim: n => [|n IH]; [exact: holds_nothing | exact: holds_before h IH]. Qed.

Theorem holds_times (I : known) body n : holds I body I -> holds I (times n body) I.
Proof.
move=> h; split=> c s Ic; [exact: (holds_prob (holds_repeat _ h)) | exact: (holds_good (holds_repeat _ h)) |].
exact: (holds_after (holds_repeat _ h)).
Qed.

Theorem holds_loop (I : known) body (test : text -> S -> bool) n :
  holds (fun c s => I c s /\ test c s) body I -> holds I (loop n test body) I.
Proof.
move=> h; elim: n => [|n IH]; first exact: holds_nothing.
apply: holds_branch; first exact: holds_before h IH.
by apply: holds_weaken (holds_nothing I) => // c s [].
Qed.

End Loops.

(** ** The three modes of a claim, and whole runs *)
Section Modes.
Variables (R : realFieldType) (V : finType) (S : Type).
Notation row := (row R V).
Notation M := (M R).
Notation text := (seq V).
Variables (target : text -> row) (own : text -> V) (ended : text -> bool).
Hypothesis target_law : forall c, law (target c).

Definition drawn_mode c (d : M (text * S)) := Law target c (fmap fst d).
Definition own_mode c (d : M (text * S)) := always (fun o => owned own c o.1) d.
Definition inside_mode c (d : M (text * S)) := always (fun o => inside target c o.1) d.

Lemma mode_drawn : mode drawn_mode.
Proof.
split=> [c d [_ d1]|c d P W pd aP pW gd gW J hJ].
  move=> J hJ; rewrite E_fmap E_bind -[RHS](E_const _ d1); apply: eq_E => s; by rewrite E_ret cats0.
rewrite E_fmap E_bind -[RHS](gd J hJ) E_fmap; apply: E_always; apply: always_impl aP => o Po.
rewrite /= E_bind -(gW o Po J) ?E_fmap; last exact: harmonic_cat.
by apply: eq_E => o'; rewrite E_ret /= catA.
Qed.

Lemma mode_always (path : text -> text -> bool) : (forall c, path c [::]) ->
  (forall c w w', path c (w ++ w') = path c w && path (c ++ w) w') ->
  mode (fun c (d : M (text * S)) => always (fun o => path c o.1) d).
Proof.
move=> p0 pc; split=> [c d _|c d P W _ aP _ gd gW].
  by apply: always_bind; apply: always_true => s; exact: always_ret.
apply: always_bind; apply: always_impl (always_and aP gd) => o [Po po].
by apply: always_bind; apply: always_impl (gW o Po) => o' po'; apply: always_ret; rewrite /= pc po.
Qed.

Lemma mode_own : mode own_mode. Proof. by apply: mode_always => // c w w'; exact: owned_cat. Qed.
Lemma mode_inside : mode inside_mode. Proof. by apply: mode_always => // c w w'; exact: inside_cat. Qed.

Lemma cut_stops c w : cut ended c w = w \/ ended (c ++ cut ended c w).
Proof.
elim: w c => [|x w IH] c /=; first by left.
have [e|_] := boolP (ended c); first by right; rewrite cats0.
by case: (IH (rcons c x)) => [->|]; [left | right; rewrite -cat_rcons].
Qed.

(** The loop [while not done], whose body keeps what is known at its head and commits at least one token. *)
Variables (body : piece R V S) (I : known V S).
Hypothesis progress : forall c s, I c s -> ~~ ended c -> always (fun o => (0 < size o.1)%N) (body c s).

Let ok c s := I c s \/ ended c.

Lemma head good c s : holds good (fun c s => I c s /\ ~~ ended c) body I -> ok c s -> ~~ ended c ->
  I c s /\ always (fun o => (0 < size o.1)%N /\ ok (c ++ cut ended c o.1) o.2) (body c s).
Proof.
move=> h [Ic|e] go; last by rewrite e in go.
split=> //; apply: always_impl (always_and (progress Ic go) (holds_after h (conj Ic go))) => o [o0 Io]; split=> //.
by case: (cut_stops c o.1) => [->|]; [left | right].
Qed.

Theorem run_drawn : holds drawn_mode (fun c s => I c s /\ ~~ ended c) body I ->
  forall n c s, I c s -> run ended (commit ended body) n n c s ~ spec target ended n c.
Proof.
move=> h n c s Ic; apply: (lawful_steps target_law (ok := ok)) => [c1 s1 oks go|c1 s1 oks go|]; last by left.
  by case: (head h oks go) => Ic1 _; exact: (holds_good h (conj Ic1 go)).
by case: (head h oks go).
Qed.

Theorem run_own : holds own_mode (fun c s => I c s /\ ~~ ended c) body I ->
  forall n c s, I c s -> run ended (commit ended body) n n c s ~ ret (own_text own ended n c).
Proof.
move=> h n c s Ic; apply: (owned_steps (ok := ok)) => [c1 s1 oks go|c1 s1 oks go|]; last by left.
  by case: (head h oks go) => Ic1 _; case: (holds_prob h (conj Ic1 go)).
case: (head h oks go) => Ic1 a; apply: always_impl (always_and a (holds_good h (conj Ic1 go))) => o [[o0 oko] oo].
by split.
Qed.

Lemma inside_cut c w : inside target c w -> inside target c (cut ended c w).
Proof. by elim: w c => //= x w IH c /andP[ix iw]; case: (ended c) => //=; rewrite ix IH. Qed.

Theorem run_inside : holds inside_mode (fun c s => I c s /\ ~~ ended c) body I ->
  forall k n c s, I c s -> always (inside target c) (run ended (commit ended body) k n c s).
Proof.
move=> h k n c s Ic; apply: (inside_steps (ok := ok)); last by left.
move=> c1 s1 oks go; case: (head h oks go) => Ic1 a; apply: always_bind.
apply: always_impl (always_and a (holds_good h (conj Ic1 go))) => o [[o0 oko] io].
by apply: always_ret; split=> //; exact: inside_cut.
Qed.

(** A fact about an earlier version of the context proves nothing: the own draw after c, committed a second time. *)
Lemma stale_not_owned c : own (rcons c (own c)) != own c -> ~~ owned own c [:: own c; own c].
Proof. by move=> ne; rewrite /= eqxx andbT /= eq_sym. Qed.

End Modes.
