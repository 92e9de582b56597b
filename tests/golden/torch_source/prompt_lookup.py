def t_at_11(m, ctx, found):
    t = tree_new(m, ctx, until=('limit', 'place', 'ends'))  # prompt_lookup.dec:11
    t_2, _ = tree_grow(m, t, found, chain=True)  # prompt_lookup.dec:12
    return t_2


def y_at_14(m, p, key, children):
    y = draw(m, p, key)  # rules.dec:14
    count = len_of(m, children)  # rules.dec:15
    return (y, count)


def x_at_15(m, children, i, y):
    x = gather(m, children, i)  # rules.dec:15
    eq = map_eq(m, x, y)  # rules.dec:16
    return (x, eq)


def prompt_lookup(m, target, k, reach):
    """Prompt lookup (Yang et al., 2023: "Inference with Reference: Lossless Acceleration of Large Language Models"):
    the last `reach` tokens, else fewer, are looked for in the text so far, and what followed them first is the
    draft.
    """
    key = noise(m, kind='output', site='output')  # rules.dec:14
    i = 0
    while not done(m):  # prompt_lookup.dec:10
        m.check_progress('stdlib/prompt_lookup.dec:10:5', i)
        ctx = context(m)  # prompt_lookup.dec:11
        state = state_read(m, state='seen')  # prompt_lookup.dec:12
        found = index_ask(m, state, ctx, 1, k, 'first', what='path', named=('at_least', 'at_most', 'pick'))
        t = t_at_11(m, ctx, found)  # prompt_lookup.dec:11
        p_target = yield m.evaluate(target, t, {})  # prompt_lookup.dec:13

        def match(depth, p, children):
            y, count = y_at_14(m, p, key, children)  # rules.dec:14
            acc, has_acc = None, False  # rules.dec:15
            for i_2 in range(count):
                x, eq = x_at_15(m, children, i_2, y)
                if eq:  # rules.dec:16
                    acc, has_acc = x, True
                if has_acc:
                    break
            not_has_acc = not has_acc  # rules.dec:15
            if not_has_acc:
                emit = y
            else:
                emit = None
            return has_acc, acc, not_has_acc, emit

        accepted = walk(m, t, p_target, match, scope='node')  # prompt_lookup.dec:13
        commit(m, accepted)  # prompt_lookup.dec:14
        i += 1


def start_seen(m, target, k, reach):
    new = index_new(m, reach, kind='suffixes')  # prompt_lookup.dec:8
    prompt = request(m, field='prompt')
    learn = index_learn(m, new, prompt)
    return learn
