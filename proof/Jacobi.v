(** Jacobi decoding: own tokens by iteration.

    The noise of the target is keyed by position and given, so that its own token after a text is a function of the text.
    [jacobi_iterations]: after j iterations of y = own tokens after y[:0], y[:1], ..., the first j tokens are own, whatever was
    guessed. [jacobi_fixpoint]: where an iteration changes nothing but the last token, all tokens are own. [jacobi_tokens]: so
    [jacobi.dec] commits the tokens of the specification. *)
From mathcomp Require Import all_ssreflect all_algebra.
From Decoding Require Import Prob Walk Steps Tokens.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Local Open Scope ring_scope.

Section Jacobi.
Variable V : finType.
Notation text := (seq V).
Variable own : text -> V.

(** [z ~ target(chain(y[:-1])) as output]: the own token after each beginning of y, as many as y has. *)
Fixpoint redraw c (y : text) : text := if y is x :: y' then own c :: redraw (rcons c x) y' else [::].

Lemma size_redraw c y : size (redraw c y) = size y.
Proof. by elim: y c => //= x y IH c; rewrite IH. Qed.

(** One iteration makes one more token certain. *)
Lemma redraw_owned j c y : owned own c (take j y) -> owned own c (take j.+1 (redraw c y)).
Proof.
elim: y j c => [|x y IH] j c //=; rewrite eqxx /=.
case: j => [|j] /=; first by rewrite take0.
by case/andP=> /eqP e oy; rewrite -e; exact: IH.
Qed.

Theorem jacobi_iterations j c y : owned own c (take j (iter j (redraw c) y)).
Proof. by elim: j => [|j IH]; [rewrite take0 | rewrite iterS; exact: redraw_owned]. Qed.

(** Where nothing changes, but for the last token, which nothing reads, everything is own. *)
Theorem jacobi_fixpoint c y : take (size y).-1 (redraw c y) = take (size y).-1 y -> owned own c (redraw c y).
Proof.
elim: y c => [|x y IH] c //=; rewrite eqxx /=; case: y IH => [|x' y] IH //= [e h].
by rewrite e; exact: IH.
Qed.

Lemma owned_take n c w : owned own c w -> owned own c (take n w).
Proof. by elim: w n c => [|x w IH] [|n] c //= /andP[-> /IH ->]. Qed.

Lemma take_both m n (w : text) : take m (take n w) = take n (take m w).
Proof. by elim: w m n => [|x w IH] [|m] [|n] //=; rewrite IH. Qed.

(** The loop of [jacobi.dec]: k iterations at most, or until nothing changes. Where the context window is full, an iteration looks
    at the first [window c y] of the tokens alone.

<<
    repeat length:
        draft t: grow chain(y[:-1])
        z ~ target(t) as output
        same = all(z[:-1] == y[:len(z) - 1])
        y = z.token
        break if same
    commit y
>> *)
Variable window : text -> text -> nat.
Hypothesis window0 : forall c y, (0 < window c y)%N.

Fixpoint jacobi k c y : text :=
  if k is k'.+1 then
    let y' := take (window c y) y in
    let z := redraw c y' in
    if take (size y').-1 z == take (size y').-1 y' then z else jacobi k' c z
  else y.

Theorem jacobi_owned k c y : (size y <= k)%N -> owned own c (jacobi k c y).
Proof.
suff h j z : owned own c (take j z) -> (size z <= j + k)%N -> owned own c (jacobi k c z).
  by move=> s; apply: (h 0%N); rewrite ?take0.
elim: k j z => [|k IH] j z oz s /=; first by rewrite -[z](@take_oversize _ j) // -[j]addn0.
case: eqP => [|_]; first exact: jacobi_fixpoint.
apply: (IH j.+1).
  by apply: redraw_owned; rewrite take_both; exact: owned_take.
by rewrite size_redraw addSnnS (leq_trans _ s) // size_take; case: ltnP => // /ltnW.
Qed.

Lemma size_jacobi k c y : (0 < size y)%N -> (0 < size (jacobi k c y))%N.
Proof.
elim: k y => //= k IH y y0; have z0 : (0 < size (redraw c (take (window c y) y)))%N.
  by rewrite size_redraw size_take; case: ifP.
by case: eqP => _ //; exact: IH.
Qed.

(** So the algorithm commits the specification's text, whatever it guesses first: at least one token a step, each in as many
    iterations as there are tokens. *)
Theorem jacobi_tokens (R : realFieldType) (ended : text -> bool) (guess : text -> text) n c :
  (forall c, 0 < size (guess c))%N ->
  run ended (commit ended (fun c (s : unit) => ret (jacobi (size (guess c)) c (guess c), s))) n n c tt
  ~ (ret (own_text own ended n c) : M R text).
Proof.
move=> g0; apply: (owned_steps (ok := fun _ _ => True)) => // {}c s _ _; first by rewrite E_ret.
by apply: always_ret; split=> //=; [exact: jacobi_owned | exact: size_jacobi].
Qed.

End Jacobi.
