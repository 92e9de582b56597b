(** What each theorem rests on: every answer has to be [Closed under the global context], which says that there are no axioms. *)
From Decoding Require Import Prob Rules Walk Steps Tokens Traversal Programs Grow.
Print Assumptions rejection_one.
Print Assumptions siblings_lossless.
Print Assumptions rejection_siblings.
Print Assumptions matching_lossless.
Print Assumptions walk_Law.
Print Assumptions walk_complete.
Print Assumptions Law_complete.
Print Assumptions Law_cut.
Print Assumptions steps.
Print Assumptions lawful_steps.
Print Assumptions verified_lossless.
Print Assumptions owned_steps.
Print Assumptions follow_owned.
Print Assumptions inside_steps.
Print Assumptions walk_inside.
Print Assumptions rejection_keeps.
Print Assumptions Law_inside.
Print Assumptions block_Law.
Print Assumptions traverse_Law.
Print Assumptions speculative_lossless.
Print Assumptions recursive_sd_lossless.
Print Assumptions block_verification_lossless.
Print Assumptions traversal_lossless.
Print Assumptions grown_Law.
